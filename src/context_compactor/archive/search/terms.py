"""How a text becomes the terms by which it is found: stems, stop words and related words."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain

STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any are aren as at be because been before being below between both but
    by can cannot could couldn d did didn do does doesn doing don down during each else etc ever few for from further
    get got had has hasn have haven having he her here hers hey hi him his how i if in into is isn it its itself just
    let like ll m me more most my no nor not now of off oh ok okay on once only or other our ours out over own per re
    really s same she should shouldn so some such t than thank thanks that the their theirs them then there these they
    this those through to too under until up us ve very via was wasn we were what when where which while who whom why
    will with won would wouldn wow yeah yes you your yours
    """.split()
)

_FORMS = """
    become became | begin began begun | break broke broken | bring brought | build built | buy bought | catch caught
    child children kid kids | choose chose chosen | come came | draw drew drawn | drive drove driven | eat ate eaten
    fall fell fallen | father dad | feel felt | find found | fly flew flown | foot feet | give gave given
    go goes going gone went | grow grew grown | hold held | keep kept | know knew known | leave left | lose lost
    make made making | man men | meet met | mother mom mum | pay paid | person people
    photo photograph picture pic | ride rode ridden | run ran | say said | see saw seen | sell sold | send sent
    sing sang sung | speak spoke spoken | spend spent | swim swam swum | take took taken | teach taught | tell told
    think thought | wear wore worn | win won | woman women | write wrote written
"""

_MEANINGS = """
    activity: hobby hike paint swim camp dance cook garden craft sport game class
    animal: dog cat bird horse fish pet wildlife zoo
    art: paint draw sculpt pottery sketch gallery photograph
    big: large huge
    book: novel read author story series
    buy: purchase shop get store
    car: drive vehicle truck ride
    career: job work profession field
    celebrate: party birthday festival anniversary
    charity: donate volunteer fundraise foundation
    child: son daughter baby toddler boy girl
    city: town visit trip
    country: abroad nation travel visit
    create: make build write add
    delete: remove erase drop
    drink: coffee tea beer wine juice water
    enjoy: love fun
    error: fail exception bug broken
    event: party festival concert ceremony conference parade celebrate
    exercise: gym workout run yoga swim bike walk fitness train
    family: mother father parent sister brother husband wife son daughter aunt uncle cousin grandma grandpa child
    favorite: love best
    feel: happy sad proud excite nervous afraid upset
    fix: repair solve patch resolve
    food: eat cook meal dinner lunch breakfast dish recipe cake pizza pasta soup salad fruit chocolate cookie snack
    friend: buddy mate pal
    game: play video board console chess
    gift: present give receive
    goal: dream hope plan aim
    health: doctor hospital ill sick pain disease diet weight injury medicine
    hobby: paint hike cook garden dance craft game read collect photograph
    home: house apartment move room
    instrument: guitar piano violin drum flute clarinet cello
    issue: problem challenge trouble
    job: work career company boss office profession hire employ
    learn: study class teach lesson skill
    marry: wedding wife husband bride groom engage
    money: pay cost price buy fund donate budget
    movie: film watch cinema theater show
    music: song sing guitar piano violin band concert album drum
    outdoor: hike camp park beach mountain forest lake trail nature kayak fish
    partner: wife husband girlfriend boyfriend spouse date
    pet: dog cat puppy pup kitten kitty turtle fish bird hamster rabbit horse
    photo: image camera share
    place: visit trip city town park
    plan: hope intend goal want future
    problem: issue challenge trouble difficult struggle setback
    relative: aunt uncle cousin grandma grandpa sister brother
    school: study university college class student teacher degree education course
    sport: basketball football soccer tennis baseball golf swim run ski surf yoga gym climb bike hike box race team
    start: begin new first launch
    stress: relax calm relief therapy unwind
    study: school university college course degree
    travel: trip visit tour vacation holiday flight journey abroad
    trip: travel visit tour vacation journey
    volunteer: charity shelter donate community help
"""

BASE_FORMS = {
    form: base
    for line in _FORMS.strip().splitlines()
    for base, *forms in (family.split() for family in line.split("|"))
    for form in forms
}
"""The base of each form that no rule finds: `went` is a form of `go`."""

RELATED_WORDS = {
    general: tuple(special.split())
    for general, special in (line.strip().split(":") for line in _MEANINGS.strip().splitlines())
}
"""General words and some of what they stand for: a question says `pet`, the answer says `dog`."""


_WORD_RUN = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\da-zA-Z_]+")
# Thai, Lao, Myanmar, Khmer, Chinese, Japanese and Korean.
_UNSPACED = re.compile(r"[฀-໿က-႟ក-៿぀-ヿ㐀-鿿가-힯]")
_SIGN = re.compile(r"[^\w\s\x00-\x7f]")
_VOWEL = re.compile(r"[aeiouy]")
_LONGEST = 64

# What stands in for an ending; the first that fits is taken.
_ENDINGS = (
    ("ization", "ize"), ("ations", "ate"), ("ation", "ate"), ("ings", ""), ("ing", ""), ("ies", "y"), ("ied", "y"),
    ("edly", ""), ("ed", ""), ("ers", "er"), ("ments", "ment"), ("ment", ""), ("ness", ""), ("ily", "y"), ("ly", ""),
    ("sses", "ss"), ("es", "e"), ("s", ""),
)  # fmt: skip
_VERBAL = ("ing", "ings", "ed", "edly")
# The endings by their last letter, so that most words are looked at once.
_BY_LAST = {
    last: tuple(each for each in _ENDINGS if each[0][-1] == last) for last in {ending[-1] for ending, _ in _ENDINGS}
}


def terms(text: str) -> list[str]:
    """The terms of a text in order; words that say nothing alone are left out."""
    return list(chain.from_iterable(map(_run_terms, _WORD_RUN.findall(text))))


def signs(text: str) -> list[str]:
    """The signs of a text that are no letters, such as arrows and emoji: what stands in no term and is looked for."""
    return [] if text.isascii() else [sign for sign in dict.fromkeys(_SIGN.findall(text)) if sign.isprintable()]


@lru_cache(maxsize=1 << 13)
def _run_terms(run: str) -> tuple[str, ...]:
    if run.isascii() and (run.isdigit() or (run.isalpha() and run.islower())):  # one part, as most are
        return _part_terms(run[:_LONGEST])
    parts = _PART.findall(run[:_LONGEST])
    found = list(chain.from_iterable(map(_part_terms, parts)))
    if len(parts) > 1 and found:
        found.append("".join(parts).lower())
    return tuple(found)


@lru_cache(maxsize=1 << 13)
def _part_terms(part: str) -> tuple[str, ...]:
    word = part.lower()
    if not part.isascii() and _UNSPACED.search(part):
        return tuple(word[at : at + 2] for at in range(max(len(word) - 1, 1)))
    return (stem(word),) if word not in STOP_WORDS and (len(word) > 1 or word.isdigit()) else ()


def stem(word: str) -> str:
    """The part of an English word that its forms share; other words stay as they are."""
    base = BASE_FORMS.get(word)
    if base is not None or len(word) <= 3 or not word.isascii():
        return base or word
    word = _without_ending(word)
    word = word[:-1] if word.endswith("e") and len(word) > 3 else word
    word = word[:-2] if word.endswith(("er", "or")) and len(word) > 4 else word
    word = word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word
    return BASE_FORMS.get(word, word)


def _without_ending(word: str) -> str:
    for ending, instead in _BY_LAST.get(word[-1], ()):
        if not word.endswith(ending) or len(word) - len(ending) < 3:
            continue
        if ending == "s" and word.endswith(("ss", "us", "is")):
            return word
        rest = word[: -len(ending)] + instead
        if ending not in _VERBAL:
            return rest
        if _VOWEL.search(rest):
            doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz"
            return rest[:-1] if doubled else rest
    return word
