"""`lakehand.toml` is checked as a whole, and an error says where and what to write instead."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakehand.errors import ConfigError
from lakehand.service.config import load_config
from lakehand.service.policies import TablePolicy, find_policy, storage_profile

FULL = """
[service]
store = "postgresql+psycopg://lakehand@db/lakehand"
time_zone = "Europe/Berlin"
lease = "90s"
max_concurrent_jobs = 8

[web]
listen = "0.0.0.0:8484"
token = "env:WEB_TOKEN"

[storage.lake]
match = ["s3://lake/**"]
endpoint = "https://s3.example.com"
secret_access_key = "env:LAKE_SECRET"

[[source]]
name = "lake"
include = ["s3://lake/*/*"]
exclude = ["s3://lake/scratch/**"]

[[pool]]
name = "default"

[[pool]]
name = "spark"
max_running = 2
engine = "spark"
remote = "sc://spark:15002"

[policy.default]
target_file_bytes = "256MiB"
check_after = { commits = 20, time = "10m" }

[policy.sales]
match = ["s3://lake/sales/**", "sales_*"]
steps = ["compact", "clean-logs"]
schedule = { verify = "0 4 * * 0" }
pool = "spark"
min_files = 2

[[hook]]
events = ["job.failed"]
url = "https://hooks.example.com/lakehand"
secret = "env:HOOK_SECRET"
"""


def load(tmp_path, text):
    file = tmp_path / "lakehand.toml"
    file.write_text(text)
    return load_config(file)


def test_every_section_is_read(tmp_path, monkeypatch):
    config = load(tmp_path, FULL)
    default, sales = config.policies
    assert config.service.lease == timedelta(seconds=90)
    assert str(config.service.time_zone) == "Europe/Berlin"
    assert (config.web.listen, config.web.token) == ("0.0.0.0:8484", "env:WEB_TOKEN")
    assert default.check_after.commits == 20
    assert (sales.steps, sales.pool) == (("compact", "clean_logs"), "spark")
    assert sales.schedule["verify"].explain() == "At 04:00 on Sunday"
    assert [pool.max_running for pool in config.pools] == [4, 2]
    monkeypatch.setenv("LAKE_SECRET", "xyz\n")
    assert config.storage["lake"].resolve() == {
        "endpoint": "https://s3.example.com",
        "secret_access_key": "xyz",
    }
    assert "xyz" not in repr(config)


def test_an_empty_file_is_a_service_with_defaults(tmp_path):
    config = load(tmp_path, "")
    assert [policy.name for policy in config.policies] == ["default"]
    assert [pool.name for pool in config.pools] == ["default"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[servce]\n", r"the file has the unknown key 'servce'"),
        ("[service]\nlaese = '1m'\n", r"\[service\] has the unknown key 'laese'"),
        ("[service]\nlease = 60\n", r"\[service\] lease cannot be 60: it has no unit"),
        ("[service]\nlease = true\n", r"\[service\] lease cannot be True"),
        ("[service]\ntime_zone = 'Mars'\n", r"'Mars' is not a time zone"),
        ("[service]\nmax_concurrent_jobs = 0\n", "must be at least 1"),
        ("service = 3\n", r"\[service\] is not a table"),
        ("[[source]]\nname = 'a'\n", r"\[\[source\]\] lacks the key include"),
        ("[source]\nname = 'a'\n", r"must be written as \[\[source\]\]"),
        ("[[source]]\nname = 'a'\ninclude = 'x'\n", "not a list of strings"),
        ("[policy]\nmin_files = 1\n", r"must be written as \[policy.NAME\]"),
        ("[policy.a]\nmin_fles = 1\n", r"\[policy.a\] has the unknown key 'min_fles'"),
        ("[policy.a]\nmin_files = 'many'\n", r"min_files cannot be set to 'many'"),
        ("[policy.a]\nsteps = ['sleep']\n", "'sleep' is not a step"),
        ("[policy.a]\npool = 'gpu'\n", "names the pool 'gpu', which does not exist"),
        ("[policy.a]\nschedule = { verify = '99 * * * *' }\n", "is not a cron expression"),
        ("[policy.a]\nschedule = { verifi = '0 4 * * *' }\n", "unknown key 'verifi'"),
        ("[[hook]]\nevents = ['job.failed']\n", "either a command or a url"),
        ("[[hook]]\nevents = ['*']\nurl = 'http://x'\nsecret = 'plain'\n", "not written here"),
        ("[[hook]]\nevents = ['*']\nurl = 'x'\n", "not a URL such as"),
        ("[[hook]]\nevents = ['*']\nurl = 'http://x'\n" * 2, "call the same"),
        ("[[hook]]\nevents = []\nurl = 'http://x'\n", "is never called"),
        ("[[hook]]\nevents = ['job.fialed']\nurl = 'http://x'\n", "did you mean job.failed"),
        ("[[hook]]\nevents = ['job.*']\ncommand = ['x']\nsecret = 'env:X'\n", "has no secret"),
        ("[web]\nlisten = '8484'\n", "not an address such as 127.0.0.1:8484"),
        ("[web]\nlisten = '127.0.0.1:99999'\n", "not an address"),
        ("[service]\nlisten = '127.0.0.1:1'\n", "unknown key 'listen'"),
        ("[[pool]]\nname = 'a'\n[[pool]]\nname = 'a'\n", "two .* sections named 'a'"),
        ("x = [\n", "is not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("[service]\nlaese = '1m'\n", "did you mean lease?"),
        ("[policy.a]\nmin_fles = 1\n", "did you mean min_files?"),
        ("[policy.a]\nmatsh = []\n", "did you mean match?"),
        ("[polcy.a]\n", "did you mean policy?"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_nearest_one(tmp_path, text, nearest):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert caught.value.hint == nearest


def test_a_secret_that_is_written_into_the_file_is_not_shown(tmp_path):
    with pytest.raises(ConfigError, match="named as env:VARIABLE") as caught:
        load(tmp_path, "[web]\ntoken = 'hunter2'\n")
    assert "hunter2" not in str(caught.value)


def test_a_missing_file_says_how_to_write_one(tmp_path):
    with pytest.raises(ConfigError, match="there is no configuration file") as caught:
        load_config(tmp_path / "none.toml")
    assert "service init" in caught.value.hint


def test_a_missing_secret_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.delenv("LAKE_SECRET", raising=False)
    config = load(tmp_path, FULL)
    with pytest.raises(ConfigError, match="LAKE_SECRET, which holds a secret, is not set"):
        config.storage["lake"].resolve()


@pytest.mark.parametrize(
    ("url", "name", "policy"),
    [
        ("s3://lake/sales/orders", None, "sales"),
        ("s3://lake/other/orders", None, "default"),
        ("s3://other/x", "sales_2026", "sales"),
    ],
)
def test_the_pattern_that_says_most_decides(tmp_path, url, name, policy):
    assert find_policy(load(tmp_path, FULL).policies, url, name).name == policy


def test_settings_say_where_they_come_from(tmp_path):
    default, sales = load(tmp_path, FULL).policies
    of_table = TablePolicy(policy=sales, overrides={"grace": "2h"})
    settings = of_table.settings({"delta.targetFileSize": "64MiB"})
    assert (settings.min_files, settings.sources["min_files"]) == (2, "policy sales")
    assert (settings.grace, settings.sources["grace"]) == (timedelta(hours=2), "table")
    assert settings.target_file_bytes == 64 * 2**20
    assert of_table.digest != TablePolicy(policy=default, overrides={}).digest


def test_a_storage_section_is_found_by_url(tmp_path):
    config = load(tmp_path, FULL)
    assert storage_profile(config, "s3://lake/sales/orders") == "lake"
    assert storage_profile(config, "s3://elsewhere/x") is None
