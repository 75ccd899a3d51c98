"""In which language a text is written: by its script, and among Latin letters by its small words.

It is a guess that admits when it does not know. Code, paths and names say nothing about a language and weigh little.
"""

from __future__ import annotations

import re

NAMES = {
    "en": "English", "de": "German", "fr": "French", "es": "Spanish", "pt": "Portuguese", "it": "Italian",
    "nl": "Dutch", "pl": "Polish", "tr": "Turkish", "ru": "Russian", "uk": "Ukrainian", "zh": "Chinese",
    "ja": "Japanese", "ko": "Korean", "ar": "Arabic", "he": "Hebrew", "hi": "Hindi", "th": "Thai", "el": "Greek",
}  # fmt: skip

_SMALL_WORDS = {
    "en": "the of and to in is was that it for with not are this be were has have but by from so then we you i now "
    "when which should do does did can at an as if there",
    "de": "der die das und ist nicht mit ein eine zu den dem von auf für wird wurde sich auch noch aber ich wir es im "
    "hat haben sind bei nur wenn dass sie",
    "fr": "le la les des et est pas une un dans pour que qui sur avec ce il elle nous vous sont été plus par au aux du "
    "je ne mais ou",
    "es": "el la los las y es no una un en para que de con por se del está son pero como más al lo su fue ya hay muy "
    "porque cuando también puede",
    "pt": "o a os as e é não uma um em para que com por se do da está são mas como mais ao foi no na já também quando "
    "você isso pode",
    "it": "il lo la gli le e è non una un in per che con si del della sono ma come più al nel anche stato ha questo "
    "quando di",
    "nl": "de het een en is niet met van op voor dat die wordt zijn ook maar er als naar bij ik we aan om deze heeft",
    "pl": "i w na nie się jest że do z to po jak ale przez są był dla od tego już tylko oraz być",
    "tr": "ve bir bu için ile de da değil olarak daha çok ama gibi var yok olan kadar sonra her",
}
_WORDS = {language: frozenset(words.split()) for language, words in _SMALL_WORDS.items()}
_SCRIPTS = {
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "zh": re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]"),
    "ko": re.compile(r"[\uac00-\ud7af\u1100-\u11ff]"),
    "ru": re.compile(r"[\u0400-\u04ff]"),
    "ar": re.compile(r"[\u0600-\u06ff]"),
    "he": re.compile(r"[\u0590-\u05ff]"),
    "hi": re.compile(r"[\u0900-\u097f]"),
    "th": re.compile(r"[\u0e00-\u0e7f]"),
    "el": re.compile(r"[\u0370-\u03ff]"),
}
_UKRAINIAN = re.compile(r"[іїєґІЇЄҐ]")
# A word stands alone: parts of names, paths and code do not count.
_LATIN = re.compile(r"(?<![\w./\\'\"`=<>-])[^\W\d_]+(?![\w/\\=<>(-]|\.\w)")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+", re.DOTALL)
# Two words of five are small ones; two signs make a Chinese word, five letters a Russian one.
_PER_SMALL_WORD = 2.5
_SIGNS = {"zh": 1.6, "ja": 1.6, "ko": 2.0}
_LETTERS = 5.0
_LEAST = 5.0
_CLEARLY = 2.0
_MOST_TEXT = 40_000


def weigh_languages(text: str) -> dict[str, float]:
    """About how many words of each language a text holds; languages without any are left out."""
    prose = _CODE.sub(" ", text[:_MOST_TEXT])
    words = [word.lower() for word in _LATIN.findall(prose)]
    found = {language: _PER_SMALL_WORD * sum(word in small for word in words) for language, small in _WORDS.items()}
    for language, script in _SCRIPTS.items():
        found[language] = len(script.findall(prose)) / _SIGNS.get(language, _LETTERS)
    if found["ja"] > 0.1 * found["zh"]:  # Japanese is written with Chinese signs as well
        found["ja"], found["zh"] = found["ja"] + found["zh"], 0.0
    if len(_UKRAINIAN.findall(prose)) > 0.1 * found["ru"]:
        found["uk"], found["ru"] = found["ru"], 0.0
    return {language: weight for language, weight in found.items() if weight}


def language_of(text: str) -> str:
    """The language that most of a text is in, or nothing when there is too little of it to tell."""
    found = weigh_languages(text)
    language = max(found, key=found.__getitem__, default="")
    return language if language and found[language] >= _LEAST else ""


def is_in(text: str, language: str) -> bool:
    """Whether a text may pass as written in a language: only one that is clearly in another may not."""
    found = weigh_languages(text)
    other = max((weight for name, weight in found.items() if name != language), default=0.0)
    return not language or other < _LEAST or other < _CLEARLY * found.get(language, 0.0) + _LEAST


def language_name(language: str) -> str:
    """A language's name in a prompt."""
    return NAMES.get(language, "the language in which the user writes")
