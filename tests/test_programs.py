import doctest
import re
import sys
import threading
import time

import pytest

from rmes import programs
from rmes.programs import Outcome, Programs, arguments, check_template, read_output


def python(code, *args):
    return [sys.executable, "-c", code, *args]


def test_no_value_becomes_a_command(tmp_path):
    trap = tmp_path / "trap"
    evil = f"; touch {trap}; $(touch {trap}) `touch {trap}` | touch {trap}"
    line = arguments(python("import sys; print(len(sys.argv))", "{x}"), {"x": evil})
    assert Programs().measure(line).values == (2.0,)
    assert not trap.exists()


def test_a_value_that_looks_like_a_placeholder_stays_a_value():
    assert arguments(["p", "{a}", "{b}"], {"a": "{b}", "b": "{a}"}) == ["p", "{b}", "{a}"]


def test_placeholders_are_replaced_everywhere_and_other_braces_stay():
    line = arguments(["p", '{"x": {x}, "k": {}}', "{params}", "{trial}"], {"x": 0.1}, 7)
    assert line == ["p", '{"x": 0.1, "k": {}}', '{"x": 0.1}', "7"]
    assert arguments(["{dose [mg]}"], {"dose [mg]": 2}) == ["2"]


def test_numbers_keep_all_their_digits():
    assert float(arguments(["{x}"], {"x": 1 / 3})[0]) == 1 / 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.5", (1.5,)),
        ("step 3\nloss: -2.5e-3\n", (-0.0025,)),
        ("a=1, b=.5", (0.5,)),
        ("0.1,0.2,0.3", (0.3,)),
        ("took 3s, x2, v1.2.3, score 7 %", (7.0,)),
        ('{"value": 2}\n99 bottles', (2.0,)),
        ('{"value": [1, 2.5]}', (1.0, 2.5)),
        ('{"epoch": 1}\n3', (3.0,)),
        ("{not json}\n4", (4.0,)),
    ],
)
def test_the_last_number_or_json_line_is_read(text, expected):
    assert read_output(text) == Outcome(expected)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no number"),
        ("done", "no number"),
        ("loss nan", "nan"),
        ("3\n-inf", "-inf"),
        ("total 1,234", "1,234; expected a number without commas"),
        ('{"value": null}', "the value null"),
        ('{"value": NaN}', "the value NaN"),
        ('{"value": []}', r"the value \[\]"),
        ('{"value": true}', "the value true"),
        ('{"value": 1, "noise_sd": -1}', "the noise_sd -1"),
        ('{"failed": true, "reason": "no sample"}', "no sample"),
    ],
)
def test_what_is_no_measurement_is_a_failure(text, error):
    outcome = read_output(text)
    assert outcome.values == ()
    assert re.search(error, outcome.error)


def test_noise_may_be_printed():
    assert read_output('{"value": 2, "noise_sd": 0.5}') == Outcome((2.0,), 0.5)


def test_a_bad_exit_code_is_a_failure_with_the_last_thing_said():
    code = "import sys; print(5); print('no lamp', file=sys.stderr); sys.exit(3)"
    assert Programs().measure(python(code)).error == "exit code 3: no lamp"


def test_a_time_limit_ends_a_program_and_what_it_started(tmp_path):
    late = tmp_path / "late"
    child = f"import time; time.sleep(1.5); open({str(late)!r}, 'w')"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}])"
    begin = time.monotonic()
    outcome = Programs().measure(python(code + "; time.sleep(30)"), limit=0.7)
    assert outcome.error == "it took longer than 0.7 s"
    assert time.monotonic() - begin < 10.0
    time.sleep(2.0)
    assert not late.exists()


def test_all_programs_can_be_ended():
    started = Programs()
    outcomes = []
    line = python("import time; time.sleep(30)")
    threads = [
        threading.Thread(target=lambda: outcomes.append(started.measure(line))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    while len(started._running) < 2:
        time.sleep(0.01)
    started.end()
    for thread in threads:
        thread.join(10.0)
        assert not thread.is_alive()
    assert [bool(outcome.error) for outcome in outcomes] == [True, True]
    assert started.measure(line).error == "ended"


def test_much_output_is_no_problem():
    code = "import sys; sys.stdout.write('noise 1 ' * 2_000_000); print(42)"
    assert Programs().measure(python(code)).values == (42.0,)


def test_every_parameter_must_be_used():
    check_template([sys.executable, "{x}", "{y}"], ["x", "y"])
    check_template([sys.executable, "{params}"], ["x", "y"])
    with pytest.raises(ValueError, match=r"does not use \{y\}"):
        check_template([sys.executable, "{x}"], ["x", "y"])
    with pytest.raises(ValueError, match="no program"):
        check_template([], ["x"])
    with pytest.raises(FileNotFoundError, match=r"no program '\./none'"):
        check_template(["./none", "{x}"], ["x"])


def test_examples_in_docstrings_hold():
    assert doctest.testmod(programs).failed == 0
