"""The commands of `cringle_debug.py` in lldb.

    (lldb) command script import cringle_lldb.py
    (lldb) cringle fibers

The other file lies beside this one.
"""

import lldb
from cringle_debug import (
    NONSENSE,
    SECTION,
    Commands,
    Failure,
    printable,
    reason,
    saved_registers,
    split_name,
    why_no_frames,
)


class Debugger:
    """Reads the memory of lldb's selected process."""

    def __init__(self, target):
        self.target, self.process = target, target.GetProcess()

    def read(self, address, length):
        error = lldb.SBError()
        data = self.process.ReadMemory(address, length, error)
        if not error.Success() or len(data) != length:
            raise Failure(f"cannot read the memory at {address:#x}: {error}")
        return data

    def roots(self):
        sections = (module.FindSection(SECTION) for module in self.target.module_iter())
        return [section.GetLoadAddress(self.target) for section in sections if section.IsValid()]

    def pid(self):
        return 0 if self.is_core() else self.process.GetProcessID()

    def is_core(self):
        return "core" in self.process.GetPluginName()


def run(debugger, command, _, result, __):
    """cringle fibers [TEXT] | fiber N [COMMAND] | workers | ops | locks

    `cringle fiber N COMMAND` runs a command of lldb on the stack of fiber N (`bt` if none is
    given), several if they are separated by `;`: `cringle fiber 4 frame select 5; frame variable`.
    """
    name, _, argument = command.strip().partition(" ")
    target = Debugger(debugger.GetSelectedTarget())
    commands = Commands(target)
    lists = {name: getattr(commands, name) for name in ("fibers", "workers", "ops", "locks")}
    try:
        if name in lists:
            lines = (printable(line, "utf-8") for line in lists[name](argument.strip()))
            result.AppendMessage("\n".join(lines))
        elif name == "fiber":
            run_on_fiber(debugger, target, commands, argument, result)
        else:
            raise Failure("`cringle` takes fibers, fiber, workers, ops or locks")
    except NONSENSE as error:
        result.SetError(printable(f"cringle: {reason(error)}", "utf-8"))


def run_on_fiber(debugger, target, commands, argument, result):
    name, then = split_name(argument)
    runtime, fiber = commands.find(name)
    result.AppendMessage(printable("  ".join(filter(None, runtime.row(fiber))), "utf-8"))
    thread, registers = target.process.GetSelectedThread(), {}
    if fiber.runs:
        worker = next(w for w in runtime.workers if w.running == fiber.address)
        thread = target.process.GetThreadByID(worker.thread)
        target.process.SetSelectedThread(thread)
    elif fiber.pointers() is None:
        raise Failure(why_no_frames(fiber))
    elif target.is_core():
        raise Failure("lldb shows no suspended stack of a core file; gdb does")
    else:
        machine = target.target.GetTriple().partition("-")[0]
        memory = runtime.program.memory
        registers = saved_registers(memory, fiber.pointers()[0], machine)
    before = set_registers(debugger, thread, registers)
    try:
        for one in (then or "bt").split(";"):
            shown = lldb.SBCommandReturnObject()
            debugger.GetCommandInterpreter().HandleCommand(one.strip(), shown)
            result.AppendMessage((shown.GetOutput() or "") + (shown.GetError() or ""))
    finally:
        set_registers(debugger, thread, before)


def set_registers(debugger, thread, values):
    """Sets registers of the selected thread, and returns their values before."""
    thread.SetSelectedFrame(0)
    frame = thread.GetFrameAtIndex(0)
    before = {name: frame.FindRegister(name).GetValueAsUnsigned() for name in values}
    for name, value in values.items():
        # By the command, which makes lldb forget the frames that it knows.
        done = lldb.SBCommandReturnObject()
        command = f"register write {name} {value:#x}"
        debugger.GetCommandInterpreter().HandleCommand(command, done)
        if not done.Succeeded():
            raise Failure(f"cannot set the register {name}: {done.GetError()}")
    return before


def __lldb_init_module(debugger, _):
    debugger.HandleCommand(f"command script add -o -f {__name__}.run cringle")
