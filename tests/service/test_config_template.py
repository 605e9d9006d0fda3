"""The file that `lakehand service init` writes is the declarations of the configuration."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from lakehand.errors import ConfigError
from lakehand.service.config import (
    CheckAfter,
    HookSection,
    Policy,
    PoolSection,
    ServiceConfig,
    ServiceSection,
    SourceSection,
    StorageSection,
    load_config,
    parse_config,
)
from lakehand.service.config_sections import CostsSection
from lakehand.service.config_template import render_config, write_config

SECTIONS = (ServiceSection, SourceSection, Policy, CheckAfter, PoolSection, StorageSection)


def test_the_file_as_it_is_written_says_nothing_but_defaults(tmp_path):
    file = tmp_path / "lakehand.toml"
    write_config(file)
    loaded, default = load_config(file), ServiceConfig()
    assert (loaded.sources, loaded.pools, loaded.policies) == ((), default.pools, default.policies)
    assert loaded.service.lease == default.service.lease


def test_every_key_has_one_sentence_and_is_in_the_file():
    text = render_config()
    for section in (*SECTIONS, HookSection):
        for item in fields(section):
            if "parse" in item.metadata:
                assert item.metadata["help"].endswith(".")
                assert re.search(rf"\b{item.name} = ", text), item.name


def test_the_values_behind_the_signs_are_the_defaults():
    """Without the signs the file is valid, and means what it meant with them."""
    text = re.sub(r"^#(?! )", "", render_config(["/lake"]), flags=re.MULTILINE)
    examples = r"^(command|schedule|master|remote|rate_bytes_per_second|ionice) = .*\n"
    text = re.sub(examples, "", text, flags=re.MULTILINE)
    import tomllib

    config = parse_config(tomllib.loads(text))
    assert config.service == ServiceSection()
    assert config.sources == (SourceSection(name="lake", include=("/lake",)),)
    (policy,) = config.policies
    assert policy.check_after == CheckAfter()
    assert {**{f.name: getattr(policy, f.name) for f in fields(Policy)}, "settings": {}} == {
        f.name: getattr(Policy(name="default"), f.name) for f in fields(Policy)
    }
    assert config.pools == (PoolSection(name="default"),)
    assert config.costs == CostsSection()


def test_a_file_that_exists_is_kept_unless_it_is_to_be_replaced(tmp_path):
    file = tmp_path / "lakehand.toml"
    file.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        write_config(file)
    assert file.read_text() == "mine"
    write_config(file, include=["s3://lake/**"], force=True)
    assert load_config(file).sources[0].include == ("s3://lake/**",)
    assert [one.name for one in tmp_path.iterdir()] == ["lakehand.toml"]
