"""plan cost: what an on-premises cluster costs to build and to run, with a bill of materials.

    capital = servers + switches + optics and cables + storage + management + spares + install + IT kW * facility $/kW
    per GPU = capital / G
    yearly  = IT kW * draw * PUE * 8760 h * $/kWh + support and staff
    per GPU-hour = (capital / lifetime + yearly) / (G * 8760 h * utilisation)

Network cards are in the server's price and are never counted again. Facility cost counts only if you build the hall.
"""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.errors import UsageProblem
from whichrank.plan import fabric
from whichrank.plan.answer import Answer, Bars, Formula, Table, age_warnings
from whichrank.plan.catalog import Book, Catalog, Figure
from whichrank.plan.hardware import Gpu, gpu
from whichrank.plan.inputs import ask
from whichrank.plan.quantities import Range, digits, money, percent, si, spread, total

HOURS = 8760.0
FACILITIES = ("none", "frankfurt", "london", "silicon-valley", "tokyo")
MORE_POWER = 1.05  # storage, head nodes: of the servers and switches


@dataclass(frozen=True, slots=True)
class Inputs:
    """How many GPUs of which kind, and where."""

    gpus: int = ask(512, "whole", "GPUs in all", least=1)
    gpu: str = ask("h100", "text", "GPU kind")
    topology: str = ask("fat-tree", "choice", "fabric", fabric.TOPOLOGIES)
    facility: str = ask("none", "choice", "build the hall too, at this place's price; none: it exists", FACILITIES)
    node_price: Range | None = ask(None, "money", "price of a server with its network cards, if you have a quote")
    storage: Range | None = ask(None, "money", "price of the storage, if you have a quote")
    electricity: Range | None = ask(None, "money", "price of a kWh")
    pue: Range | None = ask(None, "count", "power usage effectiveness of the hall", least=1)
    years: int = ask(4, "whole", "years over which it is written off", least=1)
    utilisation: Range = ask(Range(0.6, 0.75, 0.9), "share", "share of the hours in which a GPU is in use", least=0.01)
    rack_nodes: int = ask(4, "whole", "servers in a rack", least=1)


@dataclass(frozen=True, slots=True)
class Item:
    """A line of the bill of materials. `each` 0 and `count` 0: a share of something else."""

    name: str
    count: int
    each: Range
    cost: Range
    basis: str


@dataclass(frozen=True, slots=True)
class CostPlan:
    """Dollars and watts."""

    inputs: Inputs
    gpu: Gpu
    nodes: int
    fabric: fabric.Fabric
    items: tuple[Item, ...]
    capital: Range
    per_gpu: Range
    it_power: float
    rack_power: float
    racks: int
    yearly_energy: Range
    yearly_other: Range
    per_gpu_hour: Range
    rent: Range | None
    warnings: tuple[str, ...]
    figures: tuple[Figure, ...]


def plan(inputs: Inputs, catalog: Catalog) -> CostPlan:
    """The cluster's bill.

    Raises:
        UsageProblem: no price is known for such a server, or the topology does not reach that far.
    """
    book = catalog.book()
    kind = gpu(inputs.gpu, book)
    nodes = -(-inputs.gpus // kind.node)
    gpus = nodes * kind.node
    net = fabric.build(inputs.topology, gpus, _rails(kind), int(book.number("network.fabric.radix")))
    it_power = _power(kind, nodes, net, book)
    items = _items(inputs, kind, nodes, gpus, net, it_power, book)
    capital = total([item.cost for item in items])
    energy = _energy(inputs, it_power, book)
    other = capital * book.range("prices.running.staff_and_support")
    hours = inputs.utilisation * (gpus * HOURS)
    rent = book.optional(f"prices.{kind.key}.rent")
    in_rack = _servers_in_rack(inputs, kind)
    warnings = age_warnings(book)
    if gpus != inputs.gpus:
        warnings.insert(0, f"{inputs.gpus} GPUs do not fill servers of {kind.node}: counted {gpus}")
    if inputs.facility == "none":
        warnings.append("the hall, its power and cooling are taken as given; --facility PLACE adds their capital cost")
    if kind.domain > kind.node or kind.key == "gb200":
        warnings.append("one rack is one server here; its NVLink switches are in the price")
    return CostPlan(
        inputs,
        kind,
        nodes,
        net,
        tuple(items),
        capital,
        capital / gpus,
        it_power,
        _node_power(kind, book) * min(in_rack, nodes),
        -(-nodes // in_rack),
        energy,
        other,
        (capital * (1 / inputs.years) + energy + other) / hours,
        rent,
        tuple(warnings),
        tuple(book.used.values()),
    )


def _rails(kind: Gpu) -> int:
    """Network cards of a server that each have a rail of their own."""
    return 8 if kind.node % 8 == 0 else kind.node


def _servers_in_rack(inputs: Inputs, kind: Gpu) -> int:
    return inputs.rack_nodes if kind.node == 8 else 1


def _node_power(kind: Gpu, book: Book) -> float:
    name = f"network.nodes.{kind.key}"
    found = book.maybe(name)
    if found is None:
        raise UsageProblem(f"the catalogue has no power of a server with {kind.key}; --set {name}=10.2e3 (watts)")
    return found


def _power(kind: Gpu, nodes: int, net: fabric.Fabric, book: Book) -> float:
    """Watts of IT that the hall must feed: servers and switches at their rating, and a little for the rest."""
    switches = net.switches * book.number("network.fabric.switch_power")
    return (nodes * _node_power(kind, book) + switches) * MORE_POWER


def _items(
    inputs: Inputs, kind: Gpu, nodes: int, gpus: int, net: fabric.Fabric, power: float, book: Book
) -> list[Item]:
    each = inputs.node_price or _node_price(kind, book)
    servers = Item(f"{kind.name} server", nodes, each, each * nodes, f"{kind.node} GPUs, network cards included")
    switch = book.range("prices.fabric.switch")
    optics = book.range(f"prices.fabric.optics_{net.tiers}")
    if net.topology == "dual-plane":
        optics = optics * 1.3  # twice the cables of half the speed: breakout ends, more than once, less than twice
    made = [
        servers,
        Item("switch, 64 x 400 Gb/s", net.switches, switch, switch * net.switches, _switch_words(net)),
        Item(
            "optics and cables",
            gpus,
            optics,
            optics * gpus,
            f"per GPU: {sum(net.cables):,} cables in {_tiers(net)}, {net.transceivers:,} transceiver ends",
        ),
    ]
    hardware = total([item.cost for item in made])
    share = book.range("prices.shares.storage")
    made.append(
        Item("storage", 0, Range.exactly(0), inputs.storage, "your figure")
        if inputs.storage
        else _share("storage", servers.cost, share, "of the servers")
    )
    made += [
        _share("management", servers.cost, book.range("prices.shares.management"), "of the servers"),
        _share("spares", hardware, book.range("prices.shares.spares"), "of the hardware"),
        _share("install", hardware, book.range("prices.shares.install"), "of the hardware"),
    ]
    if inputs.facility != "none":
        per_watt = book.range(f"prices.facility.{inputs.facility}") * (book.range("prices.facility.ai_hall") + 1.0)
        basis = f"{si(power, 'W')} of IT at {digits(per_watt.likely)} $/W"
        made.append(Item("power and cooling (hall)", 0, Range.exactly(0), per_watt * power, basis))
    return made


def _node_price(kind: Gpu, book: Book) -> Range:
    found = book.optional(f"prices.{kind.key}.node")
    if found is None:
        raise UsageProblem(
            f"no published price of a server with {kind.key} is in the catalogue: give --node-price 350k"
        )
    return found


def _share(name: str, of: Range, share: Range, what: str) -> Item:
    """A share of another line. The ends of both ranges are not multiplied: the line's likely value is."""
    cost = Range(of.likely * share.low, of.likely * share.likely, of.likely * share.high)
    return Item(name, 0, Range.exactly(0), cost, f"{percent(share.low)} to {percent(share.high)} {what}, assumed")


def _tiers(net: fabric.Fabric) -> str:
    return f"{net.tiers} tiers" if net.tiers > 1 else "1 tier"


def _switch_words(net: fabric.Fabric) -> str:
    parts = [(net.leaf, "leaf"), (net.spine, "spine"), (net.core, "core")]
    return " + ".join(f"{count} {name}" for count, name in parts if count)


def _energy(inputs: Inputs, power: float, book: Book) -> Range:
    """Dollars a year."""
    price = inputs.electricity or book.range("prices.running.electricity")
    pue = inputs.pue or book.range("prices.running.pue")
    return book.range("prices.running.draw") * pue * price * (power / 1000 * HOURS)


def answer(of: CostPlan) -> Answer:
    inputs = of.inputs
    gpus = of.nodes * of.gpu.node
    says = [
        f"To build: {spread(of.capital, money)}, {spread(of.per_gpu, money)} per GPU, all in.",
        f"To run: {spread(of.yearly_energy + of.yearly_other, money)} a year, of it {money(of.yearly_energy.likely)} "
        f"electricity at {si(of.it_power, 'W')} of IT.",
        f"A GPU-hour in use: {spread(of.per_gpu_hour, money)} over {inputs.years} years at "
        f"{percent(inputs.utilisation.likely)} utilisation"
        + (f"; renting lists at {money(of.rent.low)} to {money(of.rent.high)}." if of.rent else "."),
        f"Racks: {of.racks} of {_servers_in_rack(inputs, of.gpu)} server(s), {si(of.rack_power, 'W')} each.",
    ]
    return Answer(
        "cost",
        f"Cluster: {gpus:,} x {of.gpu.name}, {of.fabric.topology}",
        tuple(says),
        (_bill(of), _fabric_table(of)),
        (
            Bars(
                "Where the money goes, $M",
                "$M",
                (("capital", tuple((item.name, item.cost.likely / 1e6) for item in of.items)),),
            ),
        ),
        _formulas(of),
        of.warnings,
        of.figures,
        of,
    )


def _bill(of: CostPlan) -> Table:
    rows = [
        (
            item.name,
            f"{item.count:,}" if item.count else "",
            money(item.each.likely) if item.count else "",
            money(item.cost.low),
            money(item.cost.likely),
            money(item.cost.high),
            item.basis,
        )
        for item in of.items
    ]
    rows.append(("total", "", "", money(of.capital.low), money(of.capital.likely), money(of.capital.high), ""))
    columns = ("item", "count", "each", "low", "likely", "high", "basis")
    return Table("Bill of materials", columns, tuple(rows), mark=len(rows) - 1, left=(0, 6))


def _fabric_table(of: CostPlan) -> Table:
    """Every topology that reaches this far, for the same GPUs."""
    gpus = of.nodes * of.gpu.node
    radix = int(_used(of)["network.fabric.radix"])
    rows: list[tuple[str, ...]] = []
    for topology in fabric.TOPOLOGIES:
        try:
            net = fabric.build(topology, gpus, _rails(of.gpu), radix)
        except UsageProblem:
            rows.append((topology, "-", "-", "-", "-", "-", "does not reach"))
            continue
        cables = " + ".join(f"{each:,}" for each in net.cables)
        rows.append((topology, *(f"{n:,}" for n in (net.leaf, net.spine, net.core, net.switches)), cables, _tiers(net)))
    mark = fabric.TOPOLOGIES.index(of.fabric.topology)
    columns = ("topology", "leaf", "spine", "core", "switches", "cables", "")
    return Table("Fabric", columns, tuple(rows), mark=mark, left=(0, 6))


def _used(of: CostPlan) -> dict[str, float]:
    """The likely values of the figures behind this plan, by name."""
    return {figure.name: figure.number.likely for figure in of.figures if isinstance(figure.value, Range)}


def _formulas(of: CostPlan) -> tuple[Formula, ...]:
    gpus = of.nodes * of.gpu.node
    used = _used(of)
    parts = " + ".join(money(item.cost.likely) for item in of.items)
    return (
        Formula("capital", " + ".join(item.name for item in of.items), parts, money(of.capital.likely)),
        Formula("per GPU", "capital / G", f"{money(of.capital.likely)} / {gpus:,}", money(of.per_gpu.likely)),
        Formula(
            "IT power",
            "(nodes * rating + switches * rating) * 1.05",
            f"({of.nodes:,} * {si(used['network.nodes.' + of.gpu.key], 'W')} + "
            f"{of.fabric.switches:,} * {si(used['network.fabric.switch_power'], 'W')}) * 1.05",
            si(of.it_power, "W"),
        ),
        Formula(
            "electricity",
            "IT kW * draw * PUE * 8760 h * $/kWh",
            f"{of.it_power / 1000:,.0f} * {used['prices.running.draw']:.3g} * "
            f"{(of.inputs.pue.likely if of.inputs.pue else used['prices.running.pue']):.3g} * 8760 * "
            f"{(of.inputs.electricity.likely if of.inputs.electricity else used['prices.running.electricity']):.3g}",
            f"{money(of.yearly_energy.likely)} a year",
        ),
        Formula(
            "GPU-hour",
            "(capital / years + yearly) / (G * 8760 h * utilisation)",
            f"({money(of.capital.likely)} / {of.inputs.years} + "
            f"{money(of.yearly_energy.likely + of.yearly_other.likely)}) / ({gpus:,} * 8760 * "
            f"{of.inputs.utilisation.likely:.2g})",
            money(of.per_gpu_hour.likely),
        ),
    )
