"""``edgewright completion bash``: a shell completion script for commands, options and targets."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from edgewright.backends.targets import all_targets

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = """examples:
  eval "$(edgewright completion bash)"                               # in ~/.bashrc
  eval "$(edgewright completion zsh)"                                # in ~/.zshrc, after compinit
  edgewright completion fish > ~/.config/fish/completions/edgewright.fish
"""

_BASH = """\
_edgewright() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="" w
  for w in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$w" in {alternatives}) command="$w"; break;; esac
  done
  if [[ "$before" == "--target" ]]; then
    COMPREPLY=($(compgen -W "{targets}" -- "$word")); return
  fi
  case "$command" in
{cases}
    *) COMPREPLY=($(compgen -W "{commands} --help --version --quiet --verbose" -- "$word"));;
  esac
}}
complete -o default -F _edgewright edgewright
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")


def run(args: argparse.Namespace) -> int:
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](), end="")
    return 0


def _options() -> dict[str, list[str]]:
    """The options of every command, read from its parser."""
    from edgewright.cli import COMMANDS, build_parser

    options = {}
    for command in COMMANDS:
        parser = _subparser(build_parser(command), command)
        options[command] = sorted({o for a in parser._actions for o in a.option_strings if o.startswith("--")})
    return options


def _subparser(parser: argparse.ArgumentParser, command: str) -> argparse.ArgumentParser:
    action = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    subparser: argparse.ArgumentParser = action.choices[command]
    return subparser


def _bash() -> str:
    options = _options()
    cases = "\n".join(
        f'    {name}) [[ "$word" == -* ]] && COMPREPLY=($(compgen -W "{" ".join(flags)}" -- "$word"));;'
        for name, flags in options.items()
    )
    return _BASH.format(
        alternatives="|".join(options), commands=" ".join(options), targets=" ".join(all_targets()), cases=cases
    )


def _zsh() -> str:
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash()}"


def _fish() -> str:
    return "\n".join([*_fish_lines(), ""])


def _fish_lines() -> Iterator[str]:
    from edgewright.cli import COMMANDS

    for name, about in COMMANDS.items():
        text = about.replace("'", "\\'")
        yield f"complete -c edgewright -n __fish_use_subcommand -a {name} -d '{text}'"
    for name, options in _options().items():
        seen = f"'__fish_seen_subcommand_from {name}'"
        for option in options:
            values = f" -x -a '{' '.join(all_targets())}'" if option == "--target" else ""
            yield f"complete -c edgewright -n {seen} -l {option[2:]}{values}"
