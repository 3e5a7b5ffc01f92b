"""The compile spec: names, defaults, flags, and what goes into the file."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import ethosu
import pytest

from edgewright.backends.ethos_u import ArmCompileSpecBuilder, EthosUCompileSpec
from edgewright.backends.ethos_u.target import ACCELERATORS, DEFAULTS, MEMORY_MODES, SYSTEM_CONFIGS
from edgewright.backends.ethos_u.vela_ini import check_section
from edgewright.errors import FileAccessError, UsageError
from edgewright.formats import read_program
from tests.support.golden import GOLDEN

INI = Path(next(iter(ethosu.__path__))) / "config_files" / "Arm" / "vela.ini"


def sections(kind: str) -> list[str]:
    parser = configparser.ConfigParser()
    parser.read(INI)
    return [name.partition(".")[2] for name in parser.sections() if name.startswith(f"{kind}.")]


def test_our_names_are_those_of_vela() -> None:
    assert list(SYSTEM_CONFIGS) == sections("System_Config")
    assert list(MEMORY_MODES) == sections("Memory_Mode")
    parser = configparser.ConfigParser()
    parser.read(INI)
    for mode, limit in MEMORY_MODES.items():
        said = parser.get(f"Memory_Mode.{mode}", "arena_cache_size", fallback=None)
        assert limit == (None if said is None else int(said))


def test_our_accelerators_are_those_of_vela() -> None:
    from ethosu.vela.architecture_features import Accelerator, ArchitectureFeatures, create_default_arch

    assert list(ACCELERATORS) == Accelerator.member_list()
    for name, (family, macs, cores) in ACCELERATORS.items():
        arch: ArchitectureFeatures = create_default_arch(Accelerator(name))
        assert (arch.num_macs_per_cycle, arch.ncores) == (macs, cores)
        assert family in name
        assert EthosUCompileSpec(name, *DEFAULTS[family]).arena_limit <= arch.max_address_offset
    assert EthosUCompileSpec("ethos-u65-512").macs == 512


@pytest.mark.parametrize("target", ACCELERATORS)
def test_defaults_are_those_of_executorch(target: str) -> None:
    spec = EthosUCompileSpec(target)
    stock = {
        "u55": ("Ethos_U55_High_End_Embedded", "Shared_Sram"),
        "u65": ("Ethos_U65_High_End", "Dedicated_Sram_384KB"),
        "u85": ("Ethos_U85_SYS_DRAM_Mid", "Sram_Only"),
    }
    assert (spec.system_config, spec.memory_mode) == stock[spec.family]
    assert spec.accelerator == spec.target == target


@pytest.mark.parametrize("name", ["ethos_u55_128", "ethos_u65_256", "ethos_u85_256"])
def test_specs_in_the_file_are_those_of_stock(name: str) -> None:
    (delegate,) = read_program(GOLDEN / "ethos_u" / f"{name}.pte").execution_plan[0].delegates
    stock = {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}
    stock.pop("transform_pipeline_config", None)  # of stock's own passes
    assert EthosUCompileSpec(name.replace("_", "-")).to_compile_specs() == stock


def test_the_page_builds_its_spec() -> None:
    spec = (
        ArmCompileSpecBuilder()
        .ethosu_compile_spec(
            "ethos-u55-128",
            system_config="Ethos_U55_High_End_Embedded",
            memory_mode="Shared_Sram",
            extra_flags="--output-format=raw --debug-force-regor",
        )
        .build()
    )
    assert spec.extra_flags == ("--output-format=raw", "--debug-force-regor")
    assert spec.to_compile_specs()["compile_flags"].split().count(b"--output-format=raw") == 1


def test_a_builder_wants_one_target(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a target"):
        ArmCompileSpecBuilder().build()
    with pytest.raises(UsageError, match="once"):
        ArmCompileSpecBuilder().ethosu_compile_spec("ethos-u55-128").ethosu_compile_spec("ethos-u55-64")
    builder = ArmCompileSpecBuilder().ethosu_compile_spec("ethos-u55-128").dump_intermediate_artifacts_to(tmp_path)
    assert builder.build().intermediates == str(tmp_path)


def test_specs_are_values() -> None:
    one, two = (EthosUCompileSpec("Ethos-U55-128", extra_flags=f) for f in ("--optimise Size", ["--optimise=Size"]))
    assert one == two and hash(one) == hash(two) and one.target == "ethos-u55-128"
    assert one != EthosUCompileSpec("ethos-u55-128")


def test_an_allocator_replaces_the_users() -> None:
    spec = EthosUCompileSpec(
        "ethos-u55-128", "Ethos_U55_Deep_Embedded", extra_flags="--tensor-allocator Greedy --optimise Size"
    )
    linear = spec.with_allocator("LinearAlloc")
    assert linear.extra_flags == ("--optimise=Size", "--tensor-allocator=LinearAlloc")
    assert linear.system_config == "Ethos_U55_Deep_Embedded" and spec.extra_flags[0] == "--tensor-allocator=Greedy"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": "ethos-u55-129"}, r"accelerator: must be one of ethos-u55-32, .*; got ethos-u55-129\n  Did you"),
        ({"target": "cortex-m55"}, "must be one of"),
        ({"target": 55}, "must be a string"),
        ({"system_config": "Ethos_U55_High_End"}, r"High_End\n  Did you mean Ethos_U55_High_End_Embedded"),
        ({"memory_mode": "shared_sram"}, r"Dedicated_Sram_512KB; got shared_sram\n  Did you mean Shared_Sram\?"),
        ({"config_ini": "no/such.ini"}, "cannot be read"),
        ({"extra_flags": "--optimize Size"}, "Did you mean --optimise"),
        ({"extra_flags": "--frobnicate"}, "Vela has --optimise"),
        ({"extra_flags": "model.tosa"}, "must be options of Vela"),
        ({"extra_flags": 5}, "must be a string or a list"),
        ({"extra_flags": "--optimise 'Size"}, "must be a string or a list"),
        ({"extra_flags": [5]}, "must be a string or a list"),
        ({"extra_flags": "--optimise"}, "needs a value"),
        ({"extra_flags": "--optimise=Speed"}, "must be one of Size, Performance; got Speed"),
        ({"extra_flags": "--debug-force-regor=yes"}, "takes no value"),
        ({"extra_flags": "--arena-cache-size=big"}, "must be an integer"),
        ({"extra_flags": "--arena-cache-size=-1"}, "must be bytes"),
        ({"extra_flags": "--arena-cache-size=8589934592"}, "must fit the 32-bit addresses"),
        ({"extra_flags": "--cpu-tensor-alignment=24"}, "must be a power of two"),
        ({"extra_flags": "--experimental-softmax-int16-neg-exp-range=0"}, "must be above 0"),
        ({"extra_flags": "--ignore-ops=a;b"}, "must be names of operators"),
        ({"extra_flags": "--accelerator-config=ethos-u85-256"}, "must be the target of the spec, ethos-u55-128"),
        ({"extra_flags": "--memory-mode=Sram_Only", "memory_mode": "Shared_Sram"}, "memory_mode of the spec"),
        ({"extra_flags": "--output-format=tflite"}, "must be raw"),
        ({"extra_flags": "--optimise=Size --optimise=Performance"}, "must be passed once"),
        ({"extra_flags": "--debug-force-legacy-core"}, "does not read TOSA"),
        ({"extra_flags": "--separate-io-regions"}, "one region"),
        ({"extra_flags": "--list-configs x"}, "compiles nothing"),
        ({"extra_flags": "--enable-debug-db"}, "needs --output-dir"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_words(given: dict[str, object], message: str) -> None:
    with pytest.raises((UsageError, FileAccessError), match=message):
        EthosUCompileSpec(**{"target": "ethos-u55-128", **given})


def test_flags_may_name_what_arguments_leave_open() -> None:
    flags = "--accelerator-config ethos-u55-128 --system-config Ethos_U55_Deep_Embedded --memory-mode=Sram_Only"
    spec = EthosUCompileSpec("ethos-u55-128", extra_flags=flags)
    assert (spec.system_config, spec.memory_mode) == ("Ethos_U55_Deep_Embedded", "Sram_Only")
    assert spec.extra_flags == ()
    assert spec.compile_flags.count("--memory-mode=Sram_Only") == 1


MINE = """
[System_Config.Board]
core_clock=250e6
axi0_port=Sram
axi1_port=OffChipFlash
Sram_clock_scale=1.0
OffChipFlash_clock_scale=0.25
[Memory_Mode.Base]
const_mem_area=Axi1
arena_mem_area=Axi0
cache_mem_area=Axi0
[Memory_Mode.Small]
inherit=Memory_Mode.Base
arena_cache_size=65536
"""


def test_a_users_own_file_brings_its_names(tmp_path: Path) -> None:
    path = tmp_path / "board.ini"
    path.write_text(MINE)
    spec = EthosUCompileSpec("ethos-u55-128", "Board", "Small", config_ini=path)
    assert spec.arena_limit == 65536
    assert "--config=board.ini" in spec.compile_flags  # not the folder: files must not depend on it
    with pytest.raises(UsageError, match=r"must be one of Base, Small; got Shared_Sram"):
        EthosUCompileSpec("ethos-u55-128", "Board", config_ini=path)
    path.write_text(MINE.replace("65536", "lots"))
    with pytest.raises(UsageError, match="integer"):
        EthosUCompileSpec("ethos-u55-128", "Board", "Small", config_ini=path)


def test_a_users_own_file_may_be_broken(tmp_path: Path) -> None:
    path = tmp_path / "board.ini"
    for text in (b"core_clock=1", b"\xff\xfe", b"[a]\n[a]\n"):
        path.write_bytes(text)
        with pytest.raises(UsageError, match=r"must be an \.ini file"):
            EthosUCompileSpec("ethos-u55-128", config_ini=path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("250e6", "fast", r"\[System_Config\.Board\] core_clock: must be a number above zero; got fast"),
        ("250e6", "0", "must be a number above zero; got 0"),
        ("250e6", "nan", "must be a number above zero"),
        ("0.25", "x", "offchipflash_clock_scale: must be a number above zero; got x"),
        ("axi0_port=Sram", "axi0_port=Tape", "must be one of Sram, Dram, OnChipFlash, OffChipFlash; got Tape"),
        (
            "const_mem_area=Axi1",
            "const_mem_area=Axi7",
            r"Base\] const_mem_area: must be one of Axi0, Axi1",
        ),
        ("65536", "-1", "arena_cache_size: must be an integer; got -1"),
        ("inherit=Memory_Mode.Base", "inherit=Memory_Mode.Small", "must name another section, without a loop"),
        ("inherit=Memory_Mode.Base", "inherit=Memory_Mode.None", "must name another section"),
    ],
)
def test_a_users_own_file_is_checked(old: str, new: str, message: str, tmp_path: Path) -> None:
    """Vela in process would read them as zero, or not notice."""
    path = tmp_path / "board.ini"
    path.write_text(MINE.replace(old, new))
    with pytest.raises(UsageError, match=message):
        EthosUCompileSpec("ethos-u55-128", "Board", "Small", config_ini=path)


def test_arms_own_file_passes_our_checks() -> None:
    for system in SYSTEM_CONFIGS:
        check_section("vela.ini", INI.read_text(), f"System_Config.{system}")
    for mode in MEMORY_MODES:
        check_section("vela.ini", INI.read_text(), f"Memory_Mode.{mode}")
        spec = EthosUCompileSpec("ethos-u65-256", memory_mode=mode, config_ini=INI)
        assert spec.arena_limit == EthosUCompileSpec("ethos-u65-256", memory_mode=mode).arena_limit


def test_specs_need_neither_torch_nor_vela() -> None:
    code = (
        "import sys; sys.modules['ethosu'] = sys.modules['torch'] = sys.modules['tosa_serializer'] = None\n"
        "from edgewright.backends.ethos_u import EthosUCompileSpec\n"
        "from edgewright.backends.ethos_u.vela import compile_tosa\n"
        "from edgewright.errors import MissingError\n"
        "try:\n    compile_tosa(b'', EthosUCompileSpec('ethos-u55-128'), inputs=1, outputs=1)\n"
        "except MissingError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert "is not installed" in done.stdout and 'pip install "edgewright[ethos-u]"' in done.stdout, done.stderr
