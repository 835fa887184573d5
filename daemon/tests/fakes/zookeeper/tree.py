"""The fake's znodes: ZooKeeper's data model as a dict.

Owns nodes, versions, zxids and what each operation does or refuses, in the order in which a real
server checks. Does not own sessions, watches, faults or time (`now_ms` is an argument). Pure: no
async, no random. Verified against a real server by the contract suite.

Invariants: a node's parent exists; an ephemeral node has no children; a failed operation or multi
changes nothing; zxid grows by one with every transaction that changed something, and every node
remembers the zxids of its changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cursorkeeper.zookeeper.acl import OPEN, Acl
from cursorkeeper.zookeeper.errors import (
    AccessDenied,
    BadVersion,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    NotTried,
    Refused,
    RolledBack,
    ZooKeeperError,
)
from cursorkeeper.zookeeper.paths import parent
from cursorkeeper.zookeeper.values import (
    AnyVersion,
    Check,
    Create,
    Delete,
    Node,
    Op,
    OpResult,
    SetData,
    Stat,
    Version,
)


@dataclass(frozen=True, slots=True)
class _Znode:
    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int = 0
    creates: int = 0
    owner: int = 0
    acl: Acl = OPEN
    aversion: int = 0


class FakeTree:
    """All znodes of one fake ensemble, or a copy as a lagging server sees them."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes: dict[str, _Znode] = {"/": _Znode(b"", 0, 0, 0, 0, 0)}
        self._names: dict[str, dict[str, None]] = {"/": {}}
        self._undo: list[tuple[str, _Znode | None]] = []

    def copy(self) -> FakeTree:
        """The tree as it is now."""
        other = FakeTree()
        other.zxid = self.zxid
        other._nodes = dict(self._nodes)
        other._names = {path: dict(names) for path, names in self._names.items()}
        return other

    # --- reads ------------------------------------------------------------------------------------

    def mzxid(self, path: str) -> int | None:
        """Zxid of the last change of the node's data, None if there is no node."""
        node = self._nodes.get(path)
        return None if node is None else node.mzxid

    def stat(self, path: str) -> Stat | None:
        node = self._nodes.get(path)
        if node is None:
            return None
        children_count = len(self._names[path])
        # A server keeps the number of creates and shows the number of changes.
        cversion = 2 * node.creates - children_count
        return Stat(
            node.czxid,
            node.mzxid,
            node.ctime_ms,
            node.mtime_ms,
            node.version,
            cversion,
            node.aversion,
            node.owner,
            len(node.data),
            children_count,
            node.pzxid,
        )

    def get(self, path: str) -> Node:
        """Raises NoNode."""
        stat = self.stat(path)
        if stat is None:
            raise NoNode(path=path)
        return Node(self._nodes[path].data, stat.version, stat)

    def children(self, path: str) -> list[str]:
        """Raises NoNode."""
        if path not in self._nodes:
            raise NoNode(path=path)
        return sorted(self._names[path])

    def acl(self, path: str) -> tuple[Acl, Stat]:
        """Raises NoNode."""
        stat = self.get(path).stat
        return self._nodes[path].acl, stat

    # --- transactions -----------------------------------------------------------------------------

    def write(self, op: Op, owner: int, now_ms: int) -> OpResult:
        """One operation of session `owner`. Raises its error and changes nothing."""
        self._begin()
        try:
            return self._do(op, owner, now_ms)
        except ZooKeeperError:
            self._roll_back()
            raise

    def multi(self, ops: Sequence[Op], owner: int, now_ms: int) -> list[OpResult]:
        """All or none. Raises MultiFailed."""
        self._begin()
        results: list[OpResult] = []
        for index, op in enumerate(ops):
            try:
                results.append(self._do(op, owner, now_ms))
            except ZooKeeperError as culprit:
                self._roll_back()
                before = [RolledBack(path=done.path) for done in ops[:index]]
                after = [NotTried(path=later.path) for later in ops[index + 1 :]]
                raise MultiFailed([*before, culprit, *after], index) from None
        return results

    def set_acl(self, path: str, acl: Acl, version: Version) -> Stat:
        """Told, and not kept to: a fake knows no users. Raises its error and changes nothing."""
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path=path)
        if not acl:
            raise AccessDenied(path=path)
        if not isinstance(version, AnyVersion) and version != node.aversion:
            raise BadVersion(path=path)
        self._begin()
        self._put(path, replace(node, acl=acl, aversion=node.aversion + 1))
        return self.get(path).stat

    def drop_owner(self, owner: int) -> None:
        """The session is over: its ephemerals go, in one transaction."""
        self._begin()
        for path in [path for path, node in self._nodes.items() if node.owner == owner]:
            self._remove(path)

    def changed(self) -> list[str]:
        """Paths of the last transaction, once each."""
        return list(dict.fromkeys(path for path, _ in self._undo))

    def _begin(self) -> None:
        self._undo = []
        self.zxid += 1

    def _roll_back(self) -> None:
        for path, node in reversed(self._undo):
            self._put(path, node)
        self._undo = []
        self.zxid -= 1

    def _do(self, op: Op, owner: int, now_ms: int) -> OpResult:
        match op:
            case Create():
                self._create(op, owner, now_ms)
            case SetData():
                node = self._checked(op.path, op.version)
                self._change(
                    op.path,
                    replace(
                        node,
                        data=op.data,
                        version=node.version + 1,
                        mzxid=self.zxid,
                        mtime_ms=now_ms,
                    ),
                )
                return node.version + 1
            case Delete():
                if op.path == "/":
                    raise Refused(path=op.path)
                self._checked(op.path, op.version)
                if self._names[op.path]:
                    raise NotEmpty(path=op.path)
                self._remove(op.path)
            case Check():
                self._checked(op.path, op.version)
        return None

    def _create(self, op: Create, owner: int, now_ms: int) -> None:
        above = self._nodes.get(parent(op.path))
        if above is None:
            raise NoNode(path=op.path)
        path = op.path
        if path in self._nodes:
            raise NodeExists(path=path)
        if above.owner:
            raise NoChildrenForEphemerals(path=path)
        self._change(parent(path), replace(above, creates=above.creates + 1, pzxid=self.zxid))
        zxid = self.zxid
        self._change(
            path,
            _Znode(op.data, zxid, zxid, zxid, now_ms, now_ms, owner=owner if op.ephemeral else 0),
        )

    def _remove(self, path: str) -> None:
        self._change(path, None)
        self._change(parent(path), replace(self._nodes[parent(path)], pzxid=self.zxid))

    def _checked(self, path: str, version: Version) -> _Znode:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path=path)
        if not isinstance(version, AnyVersion) and version != node.version:
            raise BadVersion(path=path)
        return node

    def _change(self, path: str, node: _Znode | None) -> None:
        self._undo.append((path, self._nodes.get(path)))
        self._put(path, node)

    def _put(self, path: str, node: _Znode | None) -> None:
        if path == "/":
            assert node is not None
            self._nodes["/"] = node
            return
        name = path.rpartition("/")[2]
        if node is None:
            del self._nodes[path], self._names[path], self._names[parent(path)][name]
        else:
            if path not in self._nodes:
                self._names[path] = {}
                self._names[parent(path)][name] = None
            self._nodes[path] = node
