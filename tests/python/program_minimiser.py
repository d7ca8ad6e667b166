"""Minimises a failing program: removes outputs and steps as long as it still fails."""

from dataclasses import replace

from random_programs import fresh, reads


def minimised(program, failing):
    """Removes outputs, and replaces steps by inputs with their values, as long as the failure remains."""
    position = 0
    while position < len(program.outputs) and len(program.outputs) > 1:
        fewer = program.outputs[:position] + program.outputs[position + 1 :]
        smaller = without_dead_steps(replace(program, outputs=fewer))
        if failing(smaller):
            program = smaller
        else:
            position += 1
    position = 0
    while position < len(program.steps):
        for smaller in (dropped(program, position), frozen(program, position)):
            if smaller is not None and len(smaller.steps) < len(program.steps) and failing(smaller):
                program = smaller
                break
        else:
            position += 1
    return program


def first_of(program):
    return len(program.bindings[0])


def dropped(program, position):
    """The program without an in-place step, whose result becomes its operand."""
    step, number = program.steps[position], first_of(program) + position
    if not step.mutates:
        return None
    given = step.args[0].index

    def renumber(i):
        return given if i == number else i - 1 if i > number else i

    return without_dead_steps(renumbered(program, position, renumber))


def renumbered(program, position, number_of):
    """The program without step `position`, with its values renumbered."""
    steps = [s.renumbered(number_of) for k, s in enumerate(program.steps) if k != position]
    return replace(program, steps=steps, outputs=[number_of(i) for i in program.outputs])


def frozen(program, position):
    """The program with step `position` replaced by an input with its eager value."""
    first, number = first_of(program), first_of(program) + position
    if number in program.outputs:
        return None

    def renumber(i):
        return first if i == number else i + 1 if first <= i < number else i

    bindings = []
    for inputs in program.bindings:
        try:
            values = replace(program, steps=program.steps[: position + 1]).run(inputs)
        except (RuntimeError, IndexError):  # eager refuses these sizes
            continue
        bindings.append([*inputs, fresh(values[number])])
    return without_dead_steps(renumbered(replace(program, bindings=bindings), position, renumber))


def without_dead_steps(program):
    """The program without steps that no output and no in-place step needs."""
    first = first_of(program)
    live = set(program.outputs)
    for k in range(len(program.steps) - 1, -1, -1):
        if first + k in live or program.steps[k].mutates:
            live |= {first + k, *reads(program.steps[k])}
    order = sorted(live)
    number = {old: new for new, old in enumerate(order)}
    steps = [s.renumbered(number.__getitem__) for k, s in enumerate(program.steps) if first + k in live]
    bindings = [[inputs[i] for i in order if i < first] for inputs in program.bindings]
    return replace(program, bindings=bindings, steps=steps, outputs=[number[i] for i in program.outputs])
