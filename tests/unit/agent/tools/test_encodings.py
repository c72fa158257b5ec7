# ruff: noqa: E501
"""Files in 8-bit encodings that nothing declares: which encoding they are read in, and what is never written."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from sakti.agent.tools import textfile
from sakti.agent.tools.context import ToolState
from sakti.agent.tools.edit import edit, write
from sakti.agent.tools.grep import grep
from sakti.agent.tools.read import read
from sakti.core.errors import ToolError
from tests.fakes.tools import call

# The thresholds were tuned on translations of other programs, not on these sentences.
SENTENCES = {
    "ja": "設定ファイルを読み込みます。|この関数は古い形式のデータを変換する。|ユーザーが見つからない場合はエラーを返します。"
    "|テストの前にデータベースを初期化してください。|値が範囲外のときは警告を表示する|ログイン画面の表示を修正しました",
    "zh": "读取配置文件并检查每个字段的类型。|如果用户不存在，则返回错误信息。|这个函数把旧格式的数据转换成新格式。"
    "|请在运行测试之前初始化数据库。|当数值超出范围时显示警告|修复了登录页面无法显示的问题",
    "zh_TW": "讀取設定檔並檢查每個欄位的類型。|如果使用者不存在，則傳回錯誤訊息。|這個函式把舊格式的資料轉換成新格式。"
    "|執行測試之前請先初始化資料庫。|當數值超出範圍時顯示警告|修正了登入頁面無法顯示的問題",
    "ko": "설정 파일을 읽고 각 항목의 형식을 확인합니다.|사용자를 찾을 수 없으면 오류를 반환한다.|이 함수는 오래된 형식의 자료를 변환합니다."
    "|시험을 실행하기 전에 데이터베이스를 초기화하십시오.|값이 범위를 벗어나면 경고를 표시한다|로그인 화면이 보이지 않는 문제를 고쳤다",
    "ru": "Читает файл настроек и проверяет тип каждого поля.|Если пользователь не найден, возвращается ошибка."
    "|Эта функция преобразует данные старого формата.|Перед запуском тестов создайте базу данных."
    "|Предупреждение выводится, когда значение вне диапазона|Исправлена ошибка на странице входа",
    "bg": "Чете файла с настройките и проверява типа на всяко поле.|Ако потребителят не е намерен, връща грешка."
    "|Тази функция преобразува данните от стария формат.|Преди тестовете създайте базата данни наново.",
    "de": "Liest die Einstellungen und prüft für jedes Feld die Größe.|Gibt einen Fehler zurück, wenn der Schlüssel ungültig ist."
    "|Überschüssige Einträge werden gelöscht, außer den geänderten.|Die Prüfung läuft nächtlich über alle Verträge."
    "|Müller möchte die Übersicht für März öffnen",
    "fr": "Le fichier de paramètres est lu à chaque démarrage.|Une erreur est renvoyée si l’élève n’a pas été trouvé."
    "|Les données déjà créées ont été effacées à la fin.|Où est passé le modèle généré cet été ?|Vérifie que la clé n’est pas périmée",
    "es": "La configuración se leerá al iniciar la sesión.|Si el usuario no está, devolverá un código de error."
    "|¿Cuántos años tiene el señor Muñoz?|La función también añade los teléfonos más útiles.",
    "pl": "Wczytuje plik ustawień i sprawdza każdą wartość.|Jeśli użytkownik nie istnieje, zwraca błąd wyszukiwania."
    "|Ta funkcja przekształca dane ze źródłowej postaci.|Ostrzeżenie, gdy liczba wykracza poza dozwolony przedział",
    "cs": "Načte soubor s nastavením a ověří každou položku.|Pokud uživatel není nalezen, vrátí chybové hlášení."
    "|Tato funkce převádí údaje ze staršího formátu.|Před spuštěním testů vytvořte příslušnou databázi.",
    "hu": "Beolvassa a beállításokat, és ellenőrzi az összes mezőt.|Ha a felhasználó nem található, hibát küld vissza."
    "|A függvény átalakítja a régebbi adatokat a következő időszakra.|Az űrlap frissítése előtt törölje az előző bejegyzést.",
    "el": "Διαβάζει το αρχείο ρυθμίσεων και ελέγχει κάθε πεδίο.|Αν ο χρήστης δεν βρεθεί, επιστρέφει σφάλμα."
    "|Αυτή η συνάρτηση μετατρέπει τα παλιά δεδομένα.|Άλλη μια προειδοποίηση όταν η τιμή είναι εκτός ορίων",
    "tr": "Ayar dosyasını okur ve bütün alanların türünü doğrular.|Kullanıcı bulunamazsa bir hata iletisi döndürülür."
    "|Bu işlev eski biçimdeki verileri yenisine dönüştürür.|Değer aralığın dışındaysa uyarı gösterilir, işlem sürdürülmez.",
}  # fmt: skip
WRITTEN = (
    *(("ja", "shift_jis"), ("ja", "euc_jp"), ("zh", "gbk"), ("zh", "gb18030"), ("zh_TW", "big5"), ("ko", "euc_kr")),
    *(("ru", "koi8_r"), ("ru", "cp1251"), ("bg", "cp1251"), ("ru", "iso8859_5"), ("de", "cp1252"), ("fr", "cp1252")),
    *(("es", "latin_1"), ("de", "latin_1"), ("pl", "cp1250"), ("cs", "cp1250"), ("hu", "cp1250"), ("pl", "iso8859_2")),
    *(("el", "iso8859_7"), ("el", "cp1253"), ("tr", "cp1254")),
)


def sources(count: int, evidence: tuple[int, int]) -> Iterator[tuple[str, str, str]]:
    """Yield encoding, language and text of files in which `evidence` bytes are not ASCII."""
    chance = random.Random(7)
    for number in range(count):
        language, encoding = WRITTEN[number % len(WRITTEN)]
        sentences, rows, size = SENTENCES[language].split("|"), list[str](), 0
        while size < evidence[0] or (size < evidence[1] and chance.random() < 0.9):
            sentence = chance.choice(sentences)
            code = f"value_{chance.randint(0, 99)} = compute(x, {chance.randint(0, 9)})"
            form = chance.choice(["{}", "# {}", "/* {} */", 'title = "{}"', f"{code}  # {{}}", f"{code}\n\n// {{}}"])
            rows.append(form.format(sentence))
            size += sum(byte >= 0x80 for byte in sentence.encode(encoding))
        yield encoding, language, "\n".join(rows) + "\n"


def test_two_hundred_files_of_many_encodings_are_read_as_what_they_say() -> None:
    wrong: list[tuple[str, str, str]] = []
    for encoding, language, text in sources(210, (500, 2_000)):
        data = text.encode(encoding)
        decoded = textfile.decode(data)
        assert decoded is not None and decoded.encode(decoded.text) == data
        assert decoded.guess == "likely" or "unknown" in decoded.label
        if decoded.text != text:
            wrong.append((language, encoding, decoded.encoding))
    assert len(wrong) <= 210 * 0.05, wrong


def test_with_little_evidence_no_encoding_is_named() -> None:
    for encoding, _, text in sources(42, (10, 300)):
        decoded = textfile.decode(text.encode(encoding))
        assert decoded is not None
        if sum(byte >= 0x80 for byte in text.encode(encoding)) < textfile.EVIDENCE:
            assert decoded.guess == "weak" and decoded.label.startswith("an unknown 8-bit encoding")


@pytest.mark.parametrize("evidence", [(10, 200), (600, 900)])
async def test_an_edit_under_a_guess_keeps_all_other_bytes(tools: ToolState, evidence: tuple[int, int]) -> None:
    path = tools.workspace / "a.txt"
    for encoding, _, text in sources(21, evidence):
        data = f"limit = 1\n{text}end = 2\n".encode(encoding)
        path.write_bytes(data)
        assert "8-bit encoding" in (seen := (await call(tools, read, path="a.txt")).content) or "guessed" in seen
        await call(tools, edit, path="a.txt", old="limit = 1", new="limit = 10")
        assert path.read_bytes() == data.replace(b"limit = 1\n", b"limit = 10\n")


NEW = ["日本", "новый", "für", "→", "é"]


@pytest.mark.parametrize(("language", "encoding"), WRITTEN)
async def test_new_text_under_a_guess_is_refused(tools: ToolState, language: str, encoding: str) -> None:
    path = tools.workspace / "a.txt"
    text = SENTENCES[language].replace("|", "\n")
    data = f"limit = 1\n{text}\n".encode(encoding)
    path.write_bytes(data)
    shown = (await call(tools, read, path="a.txt")).content
    assert "Written with" in shown
    for new in NEW:
        with pytest.raises(ToolError, match="nothing was changed"):
            await call(tools, edit, path="a.txt", old="limit = 1", new=f"limit = 1  # {new}")
    assert path.read_bytes() == data


@pytest.mark.parametrize(("language", "encoding"), WRITTEN)
async def test_a_whole_write_that_would_lose_text_is_refused(tools: ToolState, language: str, encoding: str) -> None:
    path = tools.workspace / "a.txt"
    text = SENTENCES[language].replace("|", "\n")
    path.write_bytes(data := f"{text}\nlimit = 1\n".encode(encoding))
    tools.mark_seen(path)
    decoded = textfile.decode(data)
    assert decoded is not None
    first = next(c for c in decoded.text if not c.isascii())
    for content in ("limit = 2\n", decoded.text.replace(first, "", 1), decoded.text.replace(first, "?"), text + "é"):
        with pytest.raises(ToolError, match="nothing was changed"):
            await call(tools, write, path="a.txt", content=content)
    assert path.read_bytes() == data
    await call(tools, write, path="a.txt", content=decoded.text.replace("limit = 1", "limit = 2"))
    assert path.read_bytes() == data.replace(b"limit = 1", b"limit = 2")


async def test_a_search_for_other_letters_says_which_files_it_can_find(tools: ToolState) -> None:
    (tools.workspace / "a.txt").write_bytes("設定 = 1\n日本語のコメントです\n終わり\n".encode("shift_jis"))
    assert "日本語のコメントです" in (await call(tools, read, path="a.txt")).content
    assert (await call(tools, grep, pattern="日本語")).content == (
        "No match. Only files in UTF-8 and UTF-16 were searched for it."
    )
    assert (await call(tools, grep, pattern="nothing")).content == "No match."
