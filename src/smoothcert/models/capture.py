"""Capturing: a torch module is copied, and written down once as a graph of operators; the graph is what votes.

A graph that neither writes to what outlives a pass nor draws random numbers is a pure function of its rows: any thread
may evaluate it. Python code of the module, its hooks and its attributes take part in the capture and never again.
"""

from __future__ import annotations

import copy
import io
import logging
import re
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, Generic, TextIO, TypeVar

import torch
from torch import fx, nn
from torch._ops import HigherOrderOperator, OpOverload
from torch.overrides import TorchFunctionMode

from smoothcert.errors import DependentVotesError, ModelError
from smoothcert.threads import one_caller

T = TypeVar("T")


class Lending(Generic[T]):
    """Lends each of several equal objects to one borrower at a time; makes another when none is idle."""

    def __init__(self, make: Callable[[], T]) -> None:
        self.idle: list[T] = []
        self._make = make
        self._lock = threading.Lock()

    @contextmanager
    def borrowed(self) -> Iterator[T]:
        """One of the objects, for exclusive use until it is given back."""
        with self._lock:
            lent = self.idle.pop() if self.idle else None
        if lent is None:
            lent = self._make()
        yield lent
        with self._lock:  # not after an error, which may have left it in the middle of something
            self.idle.append(lent)


def converted_copy(module: nn.Module, **conversion: Any) -> nn.Module:
    """A copy that was given to ``nn.Module.to``."""
    copied = private_copy(module)
    with torch.inference_mode(False), torch.no_grad():
        return copied.to(**conversion)


def private_copy(module: nn.Module) -> nn.Module:
    """The same function with weights and a state of its own.

    ``copy.deepcopy`` leaves functions as they are: hooks and replaced methods of the copy would use the original that
    is in their closure. So functions that a part of the module holds are copied with their closures.
    """
    memo: dict[int, Any] = {}
    functions: list[tuple[types.FunctionType, types.FunctionType]] = []
    for part in module.modules():
        for value in vars(part).values():
            inside = list(value.values()) if isinstance(value, dict) else value
            _prepare(inside if isinstance(inside, (list, tuple)) else [value], memo, functions)
    try:
        # Copies of inference tensors couldn't be converted, and scripted modules clone their weights.
        with torch.inference_mode(False), torch.no_grad():
            copied = copy.deepcopy(module, memo)
            for before, after in functions:
                for old, new in zip(before.__closure__ or (), after.__closure__ or ()):
                    new.cell_contents = _copied(old.cell_contents, memo)
    except Exception as error:  # whatever a module holds may fail to be copied
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ModelError(
            f"{type(module).__name__} can't be copied ({reason}), and it is evaluated as a copy, so that later "
            "training doesn't change its answers. Remove what can't be copied, or give a function that calls the "
            "module: it is used as it is, by one worker"
        ) from error
    if copied is module:
        raise ModelError(
            f"{type(module).__name__} copies as itself, and it is evaluated as a copy, so that later training doesn't "
            "change its answers: remove its __deepcopy__"
        )
    return copied


def _prepare(
    values: Iterable[Any],
    memo: dict[int, Any],
    functions: list[tuple[types.FunctionType, types.FunctionType]],
) -> None:
    """Put into the memo what deepcopy fails on or leaves as it is."""
    for value in values:
        if isinstance(value, torch.Tensor) and not value.is_leaf:  # a result that was kept: a part of a graph
            memo[id(value)] = value.detach().clone()
        elif isinstance(value, types.FunctionType) and value.__closure__ and id(value) not in memo:
            cells = tuple(types.CellType() for _ in value.__closure__)
            twin = types.FunctionType(
                value.__code__, value.__globals__, value.__name__, value.__defaults__, cells
            )
            twin.__kwdefaults__ = value.__kwdefaults__
            memo[id(value)] = twin
            functions.append((value, twin))
            held = (cell.cell_contents for cell in value.__closure__ if cell != types.CellType())
            _prepare(held, memo, functions)


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """A copy of modules, tensors, containers and methods; anything else that a closure holds stays what it is."""
    kinds = (nn.Module, torch.Tensor, list, dict, set, types.FunctionType, types.MethodType)
    return copy.deepcopy(value, memo) if isinstance(value, kinds) else value


_LOGGERS = ("torch.export", "torch.export._trace", "torch.__trace", "torch.fx.experimental.symbolic_shapes")
_NAMESPACES = ("aten", "prims", "prim")
_HIGHER_ORDER = "associative_scan cond map_impl scan while_loop wrap_with_autocast wrap_with_set_grad_enabled"
_NO_NUMBERS = ("aten::detach_",)  # operators that write to a tensor's metadata alone
_MOST_READ = 1 << 8
"""Numbers that a pass may read out of tensors (``item``, ``tolist``): in a graph each is a symbol, and takes long."""
_SWITCHES = ("train", "training", "dropout", "dropout_p")
"""Arguments without which dropout, recurrent layers, attention and RReLU draw nothing: False or 0."""


class NotCapturedError(Exception):
    """A module that can't be written down as a graph of torch's own operators; the message says why."""


class _Cloning(nn.Module):
    """A module that may write to its input."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> Any:
        return self.module(x.clone())


def capture(name: str, module: nn.Module, rows: torch.Tensor) -> fx.GraphModule:
    """The module as a graph for batches like ``rows``; it shares no memory with the module.

    DependentVotesError if the graph writes to something that outlives a pass or draws random numbers, and
    :class:`NotCapturedError` if there is no graph. torch.export sets flags of the whole process: the process-wide lock
    is held.
    """
    program = _exported(module, rows)
    for graph in _graphs(program.graph_module):
        _check_operators(name, graph)
    if _writes(program):
        program = _without_lasting_writes(name, module, rows, program)
    return _plain(program)


def _exported(module: nn.Module, rows: torch.Tensor) -> Any:
    copied = private_copy(module)
    before = set(copied.state_dict())
    with one_caller(), _quietly(), torch.inference_mode(False), torch.no_grad():
        generator = torch.get_rng_state()
        try:
            with _Bounded():
                program = torch.export.export(copied, (rows.clone(),), strict=False)
        except Exception as error:  # foreign code, and whatever a tracer can't follow
            raise NotCapturedError(_first_line(error)) from error
        finally:
            torch.set_rng_state(generator)  # the module may seed it
    if new := set(copied.state_dict()) - before:
        raise NotCapturedError(f"its first pass makes {', '.join(sorted(new))}: evaluate it once before")
    return program


class _Bounded(TorchFunctionMode):
    """Ends the capture of code that loops over the numbers of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self._read = 0

    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._read += getattr(function, "__name__", "") in ("item", "tolist")
        if self._read > _MOST_READ:
            raise NotCapturedError(f"a pass reads more than {_MOST_READ} numbers out of tensors")
        return function(*args, **(kwargs or {}))


@contextmanager
def _quietly() -> Iterator[None]:
    """Failed exports log and print what they have got so far; other threads' output isn't touched."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(_dropped)
    try:
        with warnings.catch_warnings(), redirect_stderr(_OtherThreads(sys.stderr)):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger in loggers:
            logger.removeFilter(_dropped)


def _dropped(_record: logging.LogRecord) -> bool:
    return False


class _OtherThreads(io.TextIOBase):
    """A stream without what this thread writes to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._thread else self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


def _graphs(module: nn.Module) -> Iterator[fx.GraphModule]:
    return (part for part in module.modules() if isinstance(part, fx.GraphModule))


def _check_operators(name: str, graph: fx.GraphModule) -> None:
    for node in graph.graph.nodes:
        operator = node.target
        if node.op == "call_module" or not isinstance(operator, OpOverload | HigherOrderOperator):
            continue
        if isinstance(operator, HigherOrderOperator):
            if str(operator) not in _HIGHER_ORDER.split():
                raise NotCapturedError(f"the operator {operator} runs foreign code{_line_of(node)}")
        elif operator.namespace not in _NAMESPACES:
            raise NotCapturedError(f"the operator {operator} runs foreign code{_line_of(node)}")
        elif torch.Tag.nondeterministic_seeded in operator.tags and _draws(node, operator):
            raise DependentVotesError(
                f"{name} draws random numbers while it is evaluated: {operator}{_line_of(node)}. Votes must be "
                "functions of their rows: remove the operator, or switch it off in eval mode (training=self.training)"
            )


def _draws(node: fx.Node, operator: OpOverload) -> bool:
    """Whether an operator that may draw random numbers does, judged by its arguments."""
    arguments = operator._schema.arguments
    given = {argument.name: argument.default_value for argument in arguments}
    given |= dict(zip((argument.name for argument in arguments), node.args)) | node.kwargs
    deciding = [name for name in _SWITCHES if name in given]
    if "train" in given and "p" in given:  # of dropout; bernoulli's p is its own
        deciding.append("p")
    return not any(given[name] in (False, 0.0) for name in deciding)


def _writes(program: Any) -> list[fx.Node]:
    def writes(schema: Any) -> bool:
        return any(one.alias_info is not None and one.alias_info.is_write for one in schema.arguments)

    nodes = (node for graph in _graphs(program.graph_module) for node in graph.graph.nodes)
    operators = ((node, node.target._schema) for node in nodes if isinstance(node.target, OpOverload))
    return [node for node, schema in operators if schema.name not in _NO_NUMBERS and writes(schema)]


def _without_lasting_writes(name: str, module: nn.Module, rows: torch.Tensor, program: Any) -> Any:
    """The program, if it writes to intermediate results alone; behind a copy of its input if it writes to that."""
    lasting = _lasting_writes(program)
    if lasting and set(lasting.values()) == {"USER_INPUT_MUTATION"}:
        program = _exported(_Cloning(module), rows)
        lasting = _lasting_writes(program)
    if lasting:
        writers = [node for node in _writes(program) if _root(node).op in ("placeholder", "get_attr")]
        node = (writers or _writes(program))[0]
        raise DependentVotesError(
            f"{name} writes to {', '.join(lasting)} while it is evaluated: {node.target}{_line_of(node)}. Its answers "
            "would depend on the passes before: keep such values in local variables"
        )
    return program


def _lasting_writes(program: Any) -> dict[str, str]:
    """What outlives a pass and is written in it, and as what; only the functional form of a graph tells."""
    with one_caller(), _quietly(), torch.inference_mode(False), torch.no_grad():
        try:
            specs = program.run_decompositions({}).graph_signature.output_specs
        except Exception as error:
            if found := re.search(r"Constant (\S+) is mutated", str(error)):
                return {found[1]: "CONSTANT_MUTATION"}
            raise NotCapturedError(_first_line(error)) from error
    return {str(spec.target): spec.kind.name for spec in specs if spec.kind.name != "USER_OUTPUT"}


def _root(node: fx.Node) -> fx.Node:
    """What a node is a view of, at most: the start of the chain of first arguments."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def _line_of(node: fx.Node) -> str:
    """Where the user's code calls an operator, as a part of a sentence; empty where that isn't known."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in', node.meta.get("stack_trace") or "")
    torchs = Path(torch.__file__).parent
    outside = [(file, line) for file, line in frames if torchs not in Path(file).parents]
    return f" at {Path(outside[-1][0]).name}:{outside[-1][1]}" if outside else ""


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _plain(program: Any) -> fx.GraphModule:
    """The program as a module of one tensor and to one tensor, with weights and constants of its own."""
    with torch.inference_mode(False), torch.no_grad():
        made = program.module(check_guards=False)
        (output,) = made.graph.find_nodes(op="output")
        if len(output.args[0]) != 1:
            raise NotCapturedError("it returns other things beside its scores")
        output.args = (output.args[0][0],)
        made.graph.set_codegen(fx.graph.CodeGen())
        try:
            return copy.deepcopy(fx.GraphModule(made, made.graph)).requires_grad_(False)
        except RuntimeError as error:  # a constant without numbers, left over from the capture
            raise NotCapturedError(_first_line(error)) from error
