import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.training import Ramp


@pytest.mark.parametrize(
    ("text", "ramp"),
    [
        ("epsilon:10", Ramp("epsilon", 10)),
        ("lr=0.001:5", Ramp("lr", 5, start=0.001)),
        ("lam:0@60", Ramp("lam", 0, after=60)),
        ("one_step_norm=0.5:3@2", Ramp("one_step_norm", 3, start=0.5, after=2)),
        ("lr=0.0012345678901:5", Ramp("lr", 5, start=0.0012345678901)),
        ("sigma=3:1", Ramp("sigma", 1, start=3.0)),
    ],
)
def test_text_and_back(text, ramp):
    assert Ramp.parse(text) == ramp
    assert str(ramp) == text


@pytest.mark.parametrize("start", [1e-300, 1 / 3, 12345678.9, -2.0, 1e22])
def test_every_start_survives_the_round_trip(start):
    ramp = Ramp("lam", 4, start, 1)
    assert Ramp.parse(str(ramp)) == ramp


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eps",
        "eps:",
        ":10",
        "eps:ten",
        "eps:-1",
        "eps:1.5",
        "eps:10@",
        "eps@3",
        "eps=:10",
        "eps=x:10",
        " eps:10",
        "eps:10@-2",
        "e s:3",
        "eps=1=2:3",
    ],
)
def test_a_text_of_another_form_shows_the_form(text):
    with pytest.raises(InvalidValueError, match=r"\[=START\]:EPOCHS\[@AFTER\]") as caught:
        Ramp.parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("start", ["nan", "inf", "-inf"])
def test_a_start_that_is_no_number_is_refused(start):
    with pytest.raises(InvalidValueError, match=rf"\blr\b.*{start}"):
        Ramp.parse(f"lr={start}:5")


@pytest.mark.parametrize("field", ["epochs", "after"])
@pytest.mark.parametrize("value", [-1, 1.5, True])
def test_epochs_are_counted(field, value):
    with pytest.raises(InvalidValueError, match=f"(epochs|{field}).*{value}"):
        Ramp(**{"knob": "lr", "epochs": 1, field: value})


def test_the_first_epoch_of_a_rise_over_ten_is_a_tenth():
    values = [Ramp("epsilon", 10).value(2.0, epoch) for epoch in range(12)]
    assert values == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.0, 2.0])
    assert values[9:] == [2.0, 2.0, 2.0]


def test_a_rise_from_a_start_after_some_epochs():
    values = [Ramp("lam", 4, start=1.0, after=2).value(3.0, epoch) for epoch in range(8)]
    assert values == pytest.approx([1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.0, 3.0])


def test_a_ramp_may_fall():
    assert [Ramp("sigma", 2, start=1.0).value(0.5, epoch) for epoch in range(3)] == [0.75, 0.5, 0.5]


def test_a_rise_over_no_epochs_is_a_jump():
    assert [Ramp("lam", 0, after=2).value(6.0, epoch) for epoch in range(4)] == [0.0, 0.0, 6.0, 6.0]
    assert Ramp("lam", 0).value(6.0, 0) == 6.0


@pytest.mark.parametrize(
    ("text", "share", "scaled"),
    [
        ("epsilon:10", 0.5, "epsilon:5"),
        ("epsilon:10", 0.01, "epsilon:1"),
        ("lam:0@30", 6 / 90, "lam:0@2"),  # what waited a third of the time still does
        ("lam:0@30", 0.001, "lam:0@1"),
        ("one_step_norm=0.5:30@60", 2 / 3, "one_step_norm=0.5:20@40"),
    ],
)
def test_a_shorter_schedule_has_shorter_ramps_that_begin_earlier(text, share, scaled):
    assert str(Ramp.parse(text).scaled(share)) == scaled
