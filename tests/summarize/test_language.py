from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.summarize.language import NAMES, is_in, language_name, language_of

SAMPLES = {
    "en": "The user wants to add a refresh token and it should not be stored in the browser.",
    "de": "Der Benutzer möchte ein Token und es soll nicht im Browser gespeichert werden, weil das unsicher ist.",
    "fr": "Il faut ajouter un jeton dans le module et ne pas le garder dans le navigateur pour des raisons sûres.",
    "es": "El usuario quiere que la sesión no se guarde en el navegador porque no es seguro para los datos.",
    "pt": "O usuário não quer que a sessão seja guardada no navegador porque isso não é seguro para os dados.",
    "it": "Il token non deve essere salvato nel browser perché la sessione è più sicura con il cookie.",
    "nl": "De gebruiker wil dat het token niet in de browser wordt bewaard en dat is ook beter voor de sessie.",
    "ru": "Пользователь просит добавить токен обновления и не трогать старый код в проекте.",
    "uk": "Користувач просить додати токен оновлення і не чіпати старий код у проєкті, бо він ще потрібний їй.",
    "zh": "用户要求在登录流程中增加刷新令牌，不要修改旧的代码目录。",
    "ja": "ユーザーはログインの流れにリフレッシュトークンを追加したいと言っています。",
    "ko": "사용자는 로그인 과정에 갱신 토큰을 추가하고 싶어 합니다. 오래된 코드는 바꾸지 않습니다.",
    "ar": "يريد المستخدم إضافة رمز التحديث إلى عملية تسجيل الدخول دون تغيير الملفات القديمة",
}


@pytest.mark.parametrize(("language", "text"), SAMPLES.items())
def test_a_language_is_told_by_its_script_or_its_small_words(language, text):
    assert language_of(text) == language


@pytest.mark.parametrize(("language", "text"), SAMPLES.items())
def test_names_and_code_do_not_change_the_language(language, text):
    mixed = f"src/auth/jwt.ts `for token in the_list: if it is not None` {text} refreshToken GET https://a.b/the/of/and"
    assert language_of(mixed) == language
    assert is_in(mixed, language)


def test_another_language_does_not_pass():
    for one in SAMPLES:
        for other, text in SAMPLES.items():
            assert is_in(text * 2, one) == (one == other), (one, other)


def test_too_little_text_passes_as_any_language():
    assert language_of("ok") == ""
    assert is_in("done: src/auth/jwt.ts", "zh")


@given(st.text(), st.sampled_from(["", *NAMES]))
def test_any_text_gets_an_answer(text, language):
    assert language_of(text) in ("", *NAMES)
    assert is_in(text, language) in (True, False)
    assert language_name(language)
