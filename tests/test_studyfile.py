import pytest

from rmes import studyfile
from rmes.space import Categorical, Float, Integer


def read(tmp_path, text):
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    return studyfile.read(path)


def test_the_example_is_a_study(tmp_path):
    path = tmp_path / "my study.toml"
    studyfile.write_example(path)
    file = studyfile.read(path)
    assert file.name == "my_study"
    assert file.direction == "maximize"
    assert file.noise_sd is None
    assert file.database == tmp_path / "my_study.db"
    assert file.space.parameters == {
        "temperature_degC": Float(20.0, 90.0),
        "dose_mg": Float(0.001, 1.0, log=True),
        "cycles": Integer(1, 12),
        "solvent": Categorical(["DMF", "THF", "water"]),
    }


def test_an_example_never_replaces_a_file(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        studyfile.write_example(path)
    assert path.read_text() == "mine"


def test_a_file_with_parameters_alone_is_enough(tmp_path):
    file = read(tmp_path, "[parameters]\nx = [0, 1]\nk = { choices = [1, 2, 4] }\n")
    assert file.name == "study"
    assert file.direction == "minimize"
    assert file.space.parameters == {"x": Float(0, 1), "k": Categorical([1, 2, 4])}


def test_a_password_may_be_in_the_environment(tmp_path, monkeypatch):
    text = 'storage = "postgresql://me:$SECRET_WORD@host/db"\n[parameters]\nx = [0, 1]\n'
    with pytest.raises(ValueError, match=r"\$SECRET_WORD, which is not set"):
        read(tmp_path, text)
    monkeypatch.setenv("SECRET_WORD", "abc")
    file = read(tmp_path, text)
    assert file.storage == "postgresql://me:abc@host/db"
    assert file.database is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "study.toml: Expected '='"),
        ("", r"there is no parameter"),
        ('direction = "up"\n[parameters]\nx = [0, 1]', "direction is 'up'"),
        ("nois_sd = 1\n[parameters]\nx = [0, 1]", "unknown key 'nois_sd'"),
        ("noise_sd = -1\n[parameters]\nx = [0, 1]", "noise_sd is -1"),
        ('noise_sd = "a"\n[parameters]\nx = [0, 1]', "noise_sd is 'a'"),
        ("seed = -1\n[parameters]\nx = [0, 1]", "seed is -1"),
        ("name = 3\n[parameters]\nx = [0, 1]", "name is 3"),
        ("[parameters]\nx = [1, 0]", "parameter 'x': low is 1 and high is 0"),
        ("[parameters]\nx = [1, 2, 3]", r"3 numbers.*choices = \[1, 2, 3\]"),
        ("[parameters]\nx = []", "parameter 'x'"),
        ("[parameters]\nx = 3", "3 is no parameter"),
        ("[parameters]\nx = { low = 1 }", "expected low and high"),
        ("[parameters]\nx = { low = 1, hi = 2 }", "unknown key 'hi'"),
        ("[parameters]\nx = { low = 1, high = 2, log = 1 }", "log is 1; expected true or false"),
        ("[parameters]\nx = { low = 0, high = 2, log = true }", "log scale needs a positive"),
        ('[parameters]\nx = { choices = "ab" }', "expected { choices"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_name(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, text)
    assert str(tmp_path / "study.toml") in str(caught.value)


def test_a_missing_file_says_how_to_write_one(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"rmes init .*none\.toml"):
        studyfile.read(tmp_path / "none.toml")
