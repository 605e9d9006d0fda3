from __future__ import annotations

import json
import math
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehand.errors import UnknownSettingError, ValidationError
from lakehand.model.quantities import (
    parse_auto,
    parse_bool,
    parse_bytes,
    parse_duration,
    parse_local_path,
)
from lakehand.settings import SETTINGS, Settings, find_setting

MIB = 2**20
EVERY_ALIAS = [(setting.name, alias) for setting in SETTINGS for alias in setting.aliases]

NO_FLAGS = [s.name for s in SETTINGS if s.parse not in (parse_bool, parse_auto)]


def test_setting_names_and_aliases_are_unique():
    spellings = [s.lower() for setting in SETTINGS for s in (setting.name, *setting.aliases)]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize(("name", "alias"), EVERY_ALIAS)
def test_every_alias_leads_to_its_setting_in_any_case(name, alias):
    assert find_setting(alias).name == name
    assert find_setting(alias.upper()).name == name


def test_dashes_and_underscores_are_the_same():
    assert find_setting("target-file-bytes") is find_setting("target_file_bytes")


def test_the_default_holds_when_nobody_says_anything():
    settings = Settings(environment={})
    assert settings["target_file_bytes"] == 128 * MIB
    assert settings.sources["target_file_bytes"] == "default"


def test_a_table_property_wins_over_the_default():
    settings = Settings(environment={}, properties={"delta.targetFileSize": "64mb"})
    assert settings["target_file_bytes"] == 64_000_000
    assert settings.sources["target_file_bytes"] == "table property delta.targetFileSize"


def test_the_environment_wins_over_a_table_property():
    environment = {"LAKEHAND_TARGET_FILE_BYTES": "32MiB"}
    settings = Settings(environment=environment, properties={"delta.targetFileSize": "64mb"})
    assert settings["target_file_bytes"] == 32 * MIB
    assert settings.sources["target_file_bytes"] == "environment LAKEHAND_TARGET_FILE_BYTES"


def test_the_call_wins_over_everything():
    settings = Settings(
        {"targetFileSize": 7},
        environment={"LAKEHAND_TARGET_FILE_BYTES": "32MiB"},
        properties={"delta.targetFileSize": "64mb"},
    )
    assert settings["target_file_bytes"] == 7
    assert settings.sources["target_file_bytes"] == "call"


def test_properties_learned_later_stay_below_call_and_environment():
    properties = {"delta.targetFileSize": "1mb", "delta.checkpointInterval": "5"}
    settings = Settings({"target_file_bytes": 7}, environment={}).with_properties(properties)
    assert settings["target_file_bytes"] == 7
    assert settings["checkpoint_interval"] == 5


def test_none_in_a_call_means_not_given():
    assert Settings({"max_retries": None}, environment={})["max_retries"] == 3


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(UnknownSettingError, match="no setting named 'target_file_byte'") as caught:
        Settings({"target_file_byte": 1}, environment={})
    assert caught.value.hint == "did you mean target_file_bytes?"
    assert caught.value.exit_code == 2


def test_a_name_like_no_other_gets_no_suggestion():
    with pytest.raises(UnknownSettingError) as caught:
        find_setting("zzzz")
    assert caught.value.hint is None


def test_a_bad_value_names_its_source_and_setting():
    with pytest.raises(ValidationError, match="environment LAKEHAND_MAX_RETRIES: max_retries"):
        Settings(environment={"LAKEHAND_MAX_RETRIES": "many"})


def test_a_value_below_the_minimum_is_refused():
    with pytest.raises(ValidationError, match="must be at least 1") as caught:
        Settings({"target_file_bytes": 0}, environment={})
    assert caught.value.field == "target_file_bytes"


def test_a_value_above_the_maximum_is_refused():
    with pytest.raises(ValidationError, match=r"must be at most 0\.9") as caught:
        Settings({"small_file_ratio": "0.95"}, environment={})
    assert caught.value.field == "small_file_ratio"


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("name", NO_FLAGS)
def test_true_and_false_are_refused_where_a_number_or_a_name_is_asked_for(name, value):
    with pytest.raises(ValidationError) as caught:
        Settings({name: value}, environment={})
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_files", 2.5),
        ("small_file_ratio", float("nan")),
        ("quiet_period", float("inf")),
        ("quiet_period", "99999999999d"),
        ("bloom_columns", [1]),
        ("retention", timedelta(days=-1)),
        ("takeover_after", timedelta(seconds=-1)),
    ],
)
def test_a_value_that_would_be_taken_for_another_is_refused(name, value):
    with pytest.raises(ValidationError) as caught:
        Settings({name: value}, environment={})
    assert caught.value.field == name


def test_a_misspelt_variable_is_reported_once_with_the_nearest(monkeypatch, caplog):
    monkeypatch.setenv("LAKEHAND_TARGET_FILE_SIZES", "1mb")
    Settings()
    Settings()
    [message] = [record.getMessage() for record in caplog.records]
    assert "LAKEHAND_TARGET_FILE_SIZES is ignored" in message
    assert message.endswith("did you mean LAKEHAND_TARGET_FILE_BYTES?")


def test_a_misspelt_variable_is_reported_as_a_warning_where_nobody_shows_logs(monkeypatch):
    monkeypatch.setenv("LAKEHAND_QUIET_PERIODE", "1m")
    monkeypatch.setattr("lakehand.settings.values.is_logging_configured", lambda _logger: False)
    with pytest.warns(UserWarning, match="did you mean LAKEHAND_QUIET_PERIOD"):
        Settings()


def test_variables_of_tests_and_benchmarks_are_not_reported(monkeypatch, caplog):
    for name in ("LAKEHAND_GOLDEN", "LAKEHAND_BENCH_ROWS", "LAKEHAND_ALLOW_SKIPS"):
        monkeypatch.setenv(name, "1")
    Settings()
    assert not caplog.records


def test_a_choice_outside_the_list_is_refused_with_the_list():
    with pytest.raises(ValidationError, match="not one of auto, spark, local"):
        Settings({"engine": "dask"}, environment={})


def test_every_default_would_be_accepted_as_a_value():
    given_settings = {s.name: s.default for s in SETTINGS if s.default is not None}
    settings = Settings(given_settings, environment={})
    assert {name: settings[name] for name in given_settings} == given_settings


@pytest.mark.parametrize(
    ("text", "expected"),
    [("128MiB", 128 * MIB), ("512 mb", 512_000_000), ("1g", 2**30), ("10", 10), ("0.5k", 512)],
)
def test_sizes_are_read_with_their_units(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "MiB", "12 parsecs", "-1", "1e3"])
def test_a_text_that_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7d", timedelta(days=7)),
        ("500ms", timedelta(milliseconds=500)),
        ("90 s", timedelta(seconds=90)),
        (0, timedelta(0)),
        ("0", timedelta(0)),
        (timedelta(hours=1), timedelta(hours=1)),
    ],
)
def test_durations_are_read_with_their_units(value, expected):
    assert parse_duration(value) == expected


@given(st.integers(min_value=0, max_value=2**62))
def test_a_plain_number_of_bytes_is_itself(count):
    assert parse_bytes(count) == count


@pytest.mark.parametrize("value", ["168", 168, 0.5, "1.5"])
def test_a_duration_without_a_unit_is_refused_and_the_error_says_what_to_write(value):
    with pytest.raises(ValueError, match=f"write {value}h"):
        parse_duration(value)


DURATIONS = [setting.name for setting in SETTINGS if setting.parse is parse_duration]


@pytest.mark.parametrize("name", DURATIONS)
def test_no_setting_takes_a_duration_without_a_unit(name):
    variable = f"LAKEHAND_{name.upper()}"
    for source in ({"call": {name: 168}}, {"environment": {variable: "168"}}):
        with pytest.raises(ValidationError, match="168h"):
            Settings(**{"call": {}, "environment": {}, **source})


def test_a_spelling_that_names_its_unit_takes_fractions_of_it():
    settings = Settings({"vacuum.retention.hours": "169.5"}, environment={})
    assert settings["retention"] == timedelta(hours=169.5)


@pytest.mark.parametrize("value", ["0s", "59m", timedelta(0)])
def test_a_retention_below_an_hour_is_never_allowed(value):
    with pytest.raises(ValidationError, match="at least 1 h"):
        Settings({"retention": value, "allow_short_retention": True}, environment={})


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
@pytest.mark.parametrize("value", [10**5000, -(10**5000), Decimal("NaN")], ids=["+", "-", "nan"])
def test_a_number_that_nothing_can_hold_is_refused_with_a_type(setting, value):
    if setting.parse is parse_local_path and isinstance(value, Decimal):
        return  # Any text may be a path.
    for spelling in setting.spellings:
        with pytest.raises(ValidationError) as caught:
            Settings({spelling: value}, environment={})
        assert len(json.dumps(caught.value.to_json(), default=str)) < 1000


@pytest.mark.parametrize("value", [Decimal("1e999999"), Decimal("2.5"), 10**30, "9" * 30])
def test_a_count_is_whole_and_not_larger_than_engines_count(value):
    with pytest.raises(ValidationError):
        Settings({"min_files": value}, environment={})


@pytest.mark.parametrize("value", ["inf", "1e400", math.inf])
def test_a_ratio_is_a_number_that_a_document_can_hold(value):
    with pytest.raises(ValidationError, match="finite"):
        Settings({"oversized_file_ratio": value}, environment={})


def test_an_error_shows_the_beginning_of_a_long_value():
    with pytest.raises(ValidationError) as caught:
        Settings({"min_files": "x" * 100_000}, environment={})
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize("zone", ["Mars", "", "europe/berlin", "../x", "GMT+2", "+2:00", "+25:00"])
def test_a_time_zone_that_is_none_is_refused_as_a_setting(zone):
    with pytest.raises(ValidationError, match="partition_time_zone"):
        Settings({"partition_time_zone": zone}, environment={})


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Etc/GMT+2", "+02:00", "-0530"])
def test_time_zones_are_names_or_offsets(zone):
    settings = Settings({"partition_time_zone": zone}, environment={})
    assert settings["partition_time_zone"] == zone
