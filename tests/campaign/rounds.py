"""What a trial does, as plain values that are drawn from a seed and can be stored.

A trial is a table with some features and a list of rounds. In a round writers append, and lakehand
runs one verb in a process of its own, to which something happens.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from campaign.shapes import SHAPES

Kind = Literal[
    "local",
    "shapes",
    "writers",
    "processes",
    "faults",
    "power",
    "clocks",
    "s3",
    "disk",
    "lance",
    "spark",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: What happens to the process of a verb: nothing, SIGKILL (of its workers, too), SIGSTOP and later
#: SIGCONT, or its server is killed.
Fate = Literal["end", "kill", "kill-tree", "stop", "disturb"]

BLOCK_ROWS = 40
#: Rows of a block have ids from `block * BLOCK_IDS` on.
BLOCK_IDS = 1000

TRAITS = ("partitioned", "vectors", "changes", "row_ids", "mapped", "checksums")


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One call of lakehand; rows of `blocks` are deleted, written, or get `value`."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    blocks: tuple[int, ...] = ()
    value: int = 0


@dataclass(frozen=True, kw_only=True)
class Round:
    verb: Verb
    fate: Fate
    #: When it happens, as a fraction of the time that this verb took so far.
    moment: float
    #: If given, it happens shortly after this number of named steps, or after the rest of its
    #: division by the steps that the verb has: most of a verb is its start.
    after_steps: int | None = None
    #: How often it is called again after it was killed, to be killed at another moment.
    again: int = 0
    #: Blocks appended before the verb starts, and while it runs.
    before: tuple[int, ...] = ()
    meanwhile: tuple[int, ...] = ()

    def repeated(self, number: int) -> Round:
        """Return the same call for the `number`-th time; writers append only beside the first."""
        moment = (self.moment + 0.41 * number) % 0.97
        steps = None if self.after_steps is None else self.after_steps + 7 * number
        return replace(self, moment=moment, after_steps=steps, meanwhile=())


@dataclass(frozen=True, kw_only=True)
class Trial:
    kind: Kind
    seed: int
    traits: tuple[str, ...]
    rounds: tuple[Round, ...]
    #: How often each of the writers commits that run beside all rounds.
    commits: int = 0

    def without(self, number: int) -> Trial:
        """Return the trial with one round less. Its appends stay: later rounds need them."""
        gone, rest = self.rounds[number], list(self.rounds)
        del rest[number]
        if rest:
            place = min(number, len(rest) - 1)
            first = rest[place]
            before = (*gone.before, *gone.meanwhile, *first.before)
            rest[place] = replace(first, before=before)
        return replace(self, rounds=tuple(rest))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Trial:
        rounds = [
            Round(
                **{
                    **one,
                    "verb": Verb(**{**one["verb"], "blocks": tuple(one["verb"]["blocks"])}),
                    "before": tuple(one["before"]),
                    "meanwhile": tuple(one["meanwhile"]),
                }
            )
            for one in document["rounds"]
        ]
        return cls(**{**document, "traits": tuple(document["traits"]), "rounds": tuple(rounds)})


def draw_trial(kind: Kind, seed: int, *, rounds: int = 6, commits: int = 500) -> Trial:
    chance = random.Random(f"{kind}-{seed}")
    # delta-rs writes only to tables with few features.
    share = chance.choice([0.0, 0.4, 0.6])
    traits = tuple(name for name in TRAITS if chance.random() < share)
    if kind == "lance":
        traits = ()
    if kind == "writers":  # most of their time shall go to writers
        rounds = min(rounds, 4)
    if kind == "shapes":
        traits = (*(name for name in traits if name != "partitioned"), SHAPES[seed % len(SHAPES)])
        rounds = min(rounds, 3)
    drawing = _Drawing(kind, chance, traits)
    return Trial(
        kind=kind,
        seed=seed,
        traits=traits,
        rounds=tuple(drawing.round() for _ in range(rounds)),
        commits=commits if kind == "writers" else 0,
    )


class _Drawing:
    def __init__(self, kind: Kind, chance: random.Random, traits: tuple[str, ...]) -> None:
        self._kind, self._chance, self._traits = kind, chance, traits
        self._blocks = 0

    def round(self) -> Round:
        before = self._new_blocks(self._chance.choice([0, 1, 2, 4]) if self._blocks else 4)
        verb = self._verb()
        # A restore would undo appends; on a full disk there are none, and others sync nothing.
        is_alone = verb.name == "restore" or self._kind in {"disk", "power"}
        fates: list[Fate] = ["kill", "kill", "kill", "kill-tree", "end"]
        if self._chance.random() < 0.15:
            fates = ["stop", "disturb"] if self._kind == "s3" else ["stop"]
        if self._kind == "disk":
            fates = ["end"]
        if self._kind == "power":
            fates = ["kill", "kill", "kill", "end"]
        if self._kind == "spark":  # a driver takes long to start
            fates = ["kill"] * 9 + ["kill-tree"]
        # A driver of Spark is asked for its end, not for its steps.
        is_timed = self._kind == "spark" or self._chance.random() < 0.35
        fate = self._chance.choice(fates)
        # A hot table has its own recovery, which is called after each kill.
        most = [1, 3, 8] if self._kind in {"writers", "shapes"} else [5, 15, 40]
        again = 0 if verb.name == "hot" else self._chance.choice(most)
        return Round(
            verb=verb,
            fate=fate,
            again=min(again, 1) if self._kind == "spark" and fate == "kill-tree" else again,
            moment=self._chance.uniform(0, 1.15),
            after_steps=None if is_timed else self._chance.randrange(1, 25),
            before=before,
            meanwhile=self._new_blocks(0 if is_alone else self._chance.choice([0, 0, 1, 2, 3])),
        )

    def _new_blocks(self, count: int) -> tuple[int, ...]:
        first, self._blocks = self._blocks, self._blocks + count
        return tuple(range(first, self._blocks))

    def _verb(self) -> Verb:
        names = ["compact"] * 5 + ["cluster"] * 2 + ["delete", "upsert", "append"] * 2
        names += ["deduplicate", "maintain", "sink", "sink"]
        if self._kind == "spark":
            names = ["compact", "cluster"] * 2 + ["delete", "upsert", "deduplicate"]
        elif self._kind != "lance":
            names += ["checkpoint", "statistics", "purge", "clean_logs", "repair", "restore"]
            names += ["merge"]
        if self._kind == "writers":  # a restore would undo their commits
            names.remove("restore")
        if self._kind in {"local", "processes", "clocks"}:  # its log is on a local disk
            names += ["hot"]
        name = self._chance.choice(names)
        drawn = getattr(self, f"_{name}", None)
        return drawn() if drawn else Verb(name=name)

    def _rewriting(self) -> dict[str, Any]:
        chance = self._chance
        options: dict[str, Any] = {"target_file_bytes": chance.choice([3_000, 9_000, 2**20])}
        if self._kind != "lance":
            options["prove"] = chance.choice(["digest", "digest", "independent"])
        if chance.random() < 0.3:
            options["commit_every_groups"] = chance.choice([1, 2])
        if chance.random() < 0.2:
            options["max_files_per_run"] = chance.choice([3, 6])
        if self._kind != "lance" and chance.random() < 0.3:
            options["codec"] = chance.choice(["snappy", "zstd", "gzip", "none"])
        return options

    def _compact(self) -> Verb:
        more = {"min_files": 2, "deleted_row_ratio": self._chance.choice([0.0, 0.05])}
        if self._kind != "lance":
            more["strategy"] = self._chance.choice(["greedy", "bin-packing", "sort-by-size"])
        return Verb(name="compact", options={**self._rewriting(), **more})

    def _cluster(self) -> Verb:
        curve = self._chance.choice(["hilbert", "zorder", "linear"])
        by = self._chance.choice([["id"], ["value", "id"]])
        options = {"by": by, "curve": curve, "full": self._chance.random() < 0.5}
        return Verb(name="cluster", options={**self._rewriting(), **options})

    def _some_blocks(self) -> tuple[int, ...]:
        count = min(self._blocks, self._chance.choice([1, 1, 2, 3]))
        return tuple(sorted(self._chance.sample(range(self._blocks), count)))

    def _delete(self) -> Verb:
        return Verb(name="delete", blocks=self._some_blocks())

    def _upsert(self) -> Verb:
        new = self._new_blocks(self._chance.choice([0, 1]))
        blocks = (*self._some_blocks(), *new)
        return Verb(name="upsert", blocks=blocks, value=self._chance.randrange(1, 1000))

    def _merge(self) -> Verb:
        # A key that the source has twice and the table has not is inserted twice: SQL wants that.
        drawn = self._upsert()
        return replace(drawn, name="merge", blocks=tuple(dict.fromkeys(drawn.blocks)))

    def _hot(self) -> Verb:
        return replace(self._upsert(), name="hot")

    def _append(self) -> Verb:
        return Verb(name="append", blocks=self._new_blocks(1))

    def _sink(self) -> Verb:
        return Verb(name="sink", blocks=self._new_blocks(self._chance.choice([2, 4])))

    def _maintain(self) -> Verb:
        options = {"automatic_min_files": 2, "quiet_period": "0s", "checkpoint_interval": 2}
        return Verb(name="maintain", options=options)

    def _deduplicate(self) -> Verb:
        return Verb(name="deduplicate", options={"key": ["id"]})
