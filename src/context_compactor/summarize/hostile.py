"""Wordings that must not get into a record: orders to its reader, tool syntax, marks of roles and frames, refusals.

A text is looked at as it would be read: without invisible signs, with look-alike letters brought to one form.
"""

from __future__ import annotations

import re
import unicodedata

_IGNORE = r"(?:ignore|disregard|forget|override|bypass|skip|discard)"
_EARLIER = r"(?:previous|prior|above|earlier|preceding|foregoing|existing|original|other|system|your|these|those|all)"
_ORDERS = r"(?:instructions?|prompts?|messages?|rules?|guidelines?|directions?|orders?|commands?|context|constraints?)"
OVERRIDES = re.compile(
    rf"\b{_IGNORE}\b(?:\W+\w+){{0,3}}?\W+{_EARLIER}\b(?:\W+\w+){{0,3}}?\W+{_ORDERS}\b"
    rf"|\b{_IGNORE}\s+(?:everything|anything|all)\b(?:\W+\w+){{0,3}}?\W+(?:above|before|said|told|earlier|previous)"
    r"|\byou are now (?:a|an|the|in|free|no longer)\b|\bfrom now on,? (?:you|the assistant|act|respond|always|never)\b"
    r"|\b(?:new|updated|real|hidden|secret) (?:system )?(?:instructions?|prompt)\b\s*[:=]"
    r"|\b(?:do not|don't|never) (?:tell|inform|alert|mention (?:this|it) to) (?:the )?(?:user|human|operator)\b"
    r"|\b(?:developer|jailbreak|dan|god) mode\b"
    r"|\bimportant instructions? (?:for|to) (?:the )?(?:ai|assistant|agent|model)"
    r"|\b(?:ignoriere|vergiss|missachte)\b.{0,40}\b(?:anweisung|vorgabe|regel)"
    r"|\b(?:ignorez?|oublie[sz]?)\b.{0,40}\b(?:instructions?|consignes?)\b"
    r"|\b(?:ignora|olvida|ignore|esqueça)\b.{0,40}\b(?:instrucciones|instruções|órdenes)\b"
    r"|\b(?:игнорируй|забудь)\w*.{0,40}(?:инструкци|указани)"
    r"|(?:忽略|无视|忘记|忘掉).{0,12}(?:指令|指示|提示|说明)|(?:指示|命令)を(?:無視|忘れ)|(?:지시|명령).{0,6}무시"
)
ADDRESSED = re.compile(
    r"\b(?:you|the (?:assistant|agent|model|ai|llm|reader)|assistant|agents?)\b,? "
    r"(?:must|should|shall|needs? to|have to|has to|are to|is to|(?:are|is) required to|will now|ought to)\b"
    r"|^(?:\w+: )?(?:please|always|never|do not|don't|immediately|make sure|be sure|remember to|run|execute|send|delete"
    r"|upload|download|install|visit|email|reply|respond|reveal) \w"
)
TOOL_SYNTAX = re.compile(
    r"</?(?:antml:)?(?:tool_calls?|tool_use|tool_result|function_calls?|function_results?|invoke|parameter)\b"
    r"|<function=|<\|?(?:tool|python_tag|function)[\w ]{0,20}\|?>|\[/?tool_(?:calls?|results?)\]|```tool_(?:code|call)"
    r"|[\"'](?:tool_calls?|function_call|tool_use)[\"']\s*:"
    r"|\{\s*[\"'](?:name|function|tool|recipient_name)[\"']\s*:\s*[^{}]{1,200}?[\"'](?:arguments|parameters|input|args)[\"']\s*:"
    r"|\bto=functions\.\w|^action input\s*:"
)
ROLE_MARKS = re.compile(
    r"< ?\|[^|<>\n]{1,40}\| ?>|\[/?inst\]|<</?sys>>|</?(?:s|bos|eos|start_of_turn|end_of_turn)>"
    r"|</?(?:system|user|assistant|human|developer|system-reminder|system_prompt|instructions?)(?: [^<>\n]{0,40})?>"
)
FRAMES = re.compile(
    r"\[context record\.|\[end of record\.|</?user turn_\d|=== [0-9a-f]{8} |\[turn_\d+ (?:user|agent)[\],]"
)
SPEAKERS = re.compile(
    r"^[\s>*#_-]{0,8}(?:user|human|assistant|ai|agent|system|developer|tool|nutzer|benutzer|assistent|utilisateur"
    r"|usuario|usuário|asistente|пользователь|ассистент|用户|用戶|助手|系统|ユーザー|アシスタント|사용자|어시스턴트)"
    r"[*_]{0,2}\s{0,2}(?:\(?turn[_ ]\d+\)?)?[*_]{0,2}[:\uff1a]"
)
REFUSALS = re.compile(
    r"^\W{0,4}(?:done: |active: |blocked: )?"
    r"(?:i(?:'m| am) (?:sorry|unable|not able|afraid)|sorry\b|apologies|i apologi[sz]e"
    r"|i (?:can(?:no|')t|can not|won't|will not|must decline|do not feel|don't feel)\b"
    r"|as an? (?:ai|large language model|language model|assistant)\b|unfortunately,? i\b"
    r"|es tut mir leid|ich kann (?:dir |ihnen )?(?:dabei |das )?(?:leider )?nicht|je (?:suis désolé|ne peux pas)|désolé"
    r"|lo siento|no puedo (?:ayudar|asistir|resumir)|desculpe|sinto muito|mi dispiace|извините|к сожалению, я"
    r"|(?:很)?抱歉|对不起|我无法|我不能|申し訳|すみません|죄송)"
)

# Steps that cannot be taken back, and the words one of which must have been spoken before such a step may come next.
RISKS = tuple(
    (re.compile(rf"\b(?:{step})"), re.compile(rf"\b(?:{step}|{other})"))
    for step, other in (
        (
            r"delet|drop\w*\b|wip(?:e|ing)|eras(?:e|ing)|destroy|purg(?:e|ing)|truncat",
            r"remov|clean|clear|rm\b|get rid",
        ),
        (r"push|deploy|publish|releas", r"ship(?:s|ped|ping)?\b|merg(?:e|ing)|pull requests?\b|prs?\b"),
        (r"forc(?:e|ing)|bypass|disabl|circumvent|overrid", r"skip|ignor|no verify|turn\w* off"),
        (r"send|upload|e-?mail|transfer", r"post(?:s|ed|ing)?\b|attach"),
        (r"grant|revok|chmod|chown|sudo", r"permission|access(?:es)?\b|admin|root\b"),
    )
)
PERMISSIONS = re.compile(r"\buser\W+(?:\w+\W+){0,3}?(?:allow|permit|approv|authori[sz])\w*")
PERMITTED = re.compile(
    r"\b(?:allow|permit|approv|authori[sz]|agree)\w*"
    r"|\b(?:yes|yep|yeah|ok|okay|sure|fine|accept(?:ed)?|go ahead|go for it|do it|do so|please do)\b"
    r"|\b(?:you|it) (?:may|can)\b"
)
HOSTILE = (OVERRIDES, ROLE_MARKS, TOOL_SYNTAX, FRAMES, SPEAKERS)
"""What no fact and no reason may say, whoever said it."""


# Cyrillic and Greek letters that pass for Latin ones, in words that hold Latin ones as well.
_LOOK_ALIKES = str.maketrans("авеікмнорстухѕјԁοαεινρτυχκ", "abeikmhopctyxsjdoaeivptuxk")
_MIXED = re.compile(r"(?=\w{0,60}[a-z])(?=\w{0,60}[\u0370-\u052f])\w+")


def as_read(text: str) -> str:
    """A text in small letters as a reader takes it: no invisible signs, one form for look-alikes."""
    seen = unicodedata.normalize("NFKC", text)
    shown = (sign for sign in seen if sign in "\n\t" or unicodedata.category(sign) not in ("Cc", "Cf", "Mn"))
    small = "".join(shown).replace("\u2019", "'").lower()
    return _MIXED.sub(lambda word: word[0].translate(_LOOK_ALIKES), small)
