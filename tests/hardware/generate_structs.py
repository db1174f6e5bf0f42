"""Generate structs.py from <infiniband/verbs.h>: `python -m tests.hardware.generate_structs >
railopt/runtime/verbs/structs.py`.

A C probe is compiled against the installed header and prints `offsetof`, `sizeof` and signedness of
every field below; nothing is typed from memory. The committed result is compared with a fresh probe
wherever a compiler and the header are there. Only fields in front of any pthread mutex are listed:
what follows one differs between x86-64 and aarch64. These fields and all constants were found
equal on both (the probe cross-compiled for aarch64, run under qemu-user).
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

HEADER = Path("/usr/include/infiniband/verbs.h")

# struct -> members, in C spelling; a dotted member becomes its last part (send_wr.wr.rdma.rkey ->
# rkey).
FIELDS: dict[str, tuple[str, ...]] = {
    "ibv_context": ("ops", "async_fd"),
    "ibv_context_ops": ("poll_cq", "post_send", "post_recv"),
    "ibv_mr": ("lkey", "rkey"),
    "ibv_qp": ("qp_num",),
    "ibv_sge": ("addr", "length", "lkey"),
    "ibv_send_wr": (
        "wr_id",
        "next",
        "sg_list",
        "num_sge",
        "opcode",
        "send_flags",
        "imm_data",
        "wr.rdma.remote_addr",
        "wr.rdma.rkey",
    ),
    "ibv_recv_wr": ("wr_id", "next", "sg_list", "num_sge"),
    "ibv_wc": (
        "wr_id",
        "status",
        "opcode",
        "vendor_err",
        "byte_len",
        "imm_data",
        "qp_num",
        "src_qp",
        "wc_flags",
    ),
    "ibv_qp_init_attr": (
        "send_cq",
        "recv_cq",
        "cap.max_send_wr",
        "cap.max_recv_wr",
        "cap.max_send_sge",
        "cap.max_recv_sge",
        "qp_type",
    ),
    "ibv_qp_attr": (
        "qp_state",
        "path_mtu",
        "rq_psn",
        "sq_psn",
        "dest_qp_num",
        "qp_access_flags",
        "ah_attr.grh.dgid",
        "ah_attr.grh.sgid_index",
        "ah_attr.grh.hop_limit",
        "ah_attr.grh.traffic_class",
        "ah_attr.dlid",
        "ah_attr.sl",
        "ah_attr.is_global",
        "ah_attr.port_num:ah_port_num",
        "pkey_index",
        "max_rd_atomic",
        "max_dest_rd_atomic",
        "min_rnr_timer",
        "port_num",
        "timeout",
        "retry_cnt",
        "rnr_retry",
    ),
    "ibv_port_attr": ("state", "active_mtu", "gid_tbl_len", "max_msg_sz", "lid", "link_layer"),
    "ibv_async_event": ("element", "event_type"),
}
CONSTANTS = (
    "IBV_WC_SUCCESS",
    "IBV_WC_LOC_LEN_ERR",
    "IBV_WC_LOC_QP_OP_ERR",
    "IBV_WC_LOC_PROT_ERR",
    "IBV_WC_WR_FLUSH_ERR",
    "IBV_WC_MW_BIND_ERR",
    "IBV_WC_LOC_ACCESS_ERR",
    "IBV_WC_REM_ACCESS_ERR",
    "IBV_WC_RETRY_EXC_ERR",
    "IBV_WC_RNR_RETRY_EXC_ERR",
    "IBV_WC_RDMA_WRITE",
    "IBV_WC_RECV_RDMA_WITH_IMM",
    "IBV_WR_RDMA_WRITE",
    "IBV_WR_RDMA_WRITE_WITH_IMM",
    "IBV_SEND_SIGNALED",
    "IBV_QPT_RC",
    "IBV_QPS_INIT",
    "IBV_QPS_RTR",
    "IBV_QPS_RTS",
    "IBV_QPS_ERR",
    "IBV_QP_STATE",
    "IBV_QP_ACCESS_FLAGS",
    "IBV_QP_PKEY_INDEX",
    "IBV_QP_PORT",
    "IBV_QP_AV",
    "IBV_QP_PATH_MTU",
    "IBV_QP_TIMEOUT",
    "IBV_QP_RETRY_CNT",
    "IBV_QP_RNR_RETRY",
    "IBV_QP_RQ_PSN",
    "IBV_QP_MAX_QP_RD_ATOMIC",
    "IBV_QP_MIN_RNR_TIMER",
    "IBV_QP_SQ_PSN",
    "IBV_QP_MAX_DEST_RD_ATOMIC",
    "IBV_QP_DEST_QPN",
    "IBV_ACCESS_LOCAL_WRITE",
    "IBV_ACCESS_REMOTE_WRITE",
    "IBV_PORT_DOWN",
    "IBV_PORT_ACTIVE",
    "IBV_MTU_4096",
    "IBV_LINK_LAYER_ETHERNET",
)
STATUSES = "ibv_wc_status"
"""The enum of completion statuses, of which every name is shown to users."""
OPAQUE = frozenset({"ibv_context", "ibv_qp"})
"""Structs that hold a pthread mutex: only their leading fields are portable, their size is not."""

Layout = tuple[int, dict[str, tuple[str, int]]]
"""(size, {field: (numpy format, offset)}) of one struct."""


def enum_names(header: str, enum: str) -> list[str]:
    """The enumerators of `enum`, in header order."""
    body = re.search(rf"enum {enum} \{{(.*?)\n\}};", header, re.S)
    if body is None:
        raise LookupError(f"enum {enum} not found in {HEADER}")
    text = re.sub(r"/\*.*?\*/", "", body[1], flags=re.S)
    return re.findall(r"^\s*(IBV_\w+)", text, re.M)


def probe_source(header: str) -> str:
    """C source of the probe: one line a struct, a field and an enumerator."""
    lines = [
        "#include <infiniband/verbs.h>",
        "#include <stddef.h>",
        "#include <stdio.h>",
        "#define KIND(x) _Generic((x), int8_t: 'i', int16_t: 'i', int32_t: 'i', int64_t: 'i', "
        "uint8_t: 'u', uint16_t: 'u', uint32_t: 'u', uint64_t: 'u', default: 'p')",
        "int main(void) {",
    ]
    for struct, members in FIELDS.items():
        lines.append(f'printf("S {struct} %zu\\n", sizeof(struct {struct}));')
        for member in members:
            path, _, alias = member.partition(":")
            lines.append(
                f'printf("F {struct} {alias or path.rsplit(".")[-1]} %c %zu %zu\\n", '
                f"KIND(((struct {struct} *)0)->{path}), sizeof(((struct {struct} *)0)->{path}), "
                f"offsetof(struct {struct}, {path}));"
            )
    names = dict.fromkeys([*CONSTANTS, *enum_names(header, STATUSES)])
    lines += [f'printf("E {n} %d\\n", (int){n});' for n in names]
    return "\n".join([*lines, "return 0; }", ""])


def probe(compiler: str = "cc") -> tuple[dict[str, Layout], dict[str, int]]:
    """Compile and run the probe: layouts and enumerators of the installed header."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "probe.c"), Path(folder, "probe")
        source.write_text(probe_source(HEADER.read_text()))
        subprocess.run([compiler, "-w", "-o", str(binary), str(source)], check=True)
        out = subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout
    layouts: dict[str, Layout] = {}
    enums: dict[str, int] = {}
    for line in out.splitlines():
        kind, name, *rest = line.split()
        if kind == "S":
            layouts[name] = (int(rest[0]), {})
        elif kind == "F":
            layouts[name][1][rest[0]] = (numpy_format(rest[1], int(rest[2])), int(rest[3]))
        else:
            enums[name] = int(rest[0])
    return layouts, enums


def numpy_format(kind: str, size: int) -> str:
    """numpy format of a field: integers keep their sign, pointers are u8, anything else is raw
    bytes.
    """
    if kind == "p":
        return "u8" if size == 8 else f"V{size}"
    return f"{kind}{size}"


def render(
    layouts: dict[str, Layout], enums: dict[str, int], statuses: list[str], provenance: str
) -> str:
    """The text of `structs.py`."""
    out = [
        '"""Layouts and constants of <infiniband/verbs.h>. '
        "Generated by generate_structs.py: do not edit.",
        "",
        provenance,
        '"""',
        "",
        "import numpy as np",
        "",
        "LAYOUTS: dict[str, tuple[int, dict[str, tuple[str, int]]]] = {",
    ]
    for name, (size, fields) in layouts.items():
        listed = ", ".join(f'"{field}": ("{fmt}", {at})' for field, (fmt, at) in fields.items())
        out += _wrapped(f'"{name}": ({size}, {{{listed}}}),')
    out += [
        "}",
        '"""struct -> (bytes, {field: (numpy format, offset)})."""',
        "",
        "",
        "def dtype(struct: str) -> np.dtype[np.void]:",
        '    """numpy structured dtype of one struct; '
        'fields that railopt does not use are padding."""',
        "    size, fields = LAYOUTS[struct]",
        '    return np.dtype({"names": list(fields), "formats": [f for f, _ in fields.values()],',
        '                     "offsets": [o for _, o in fields.values()], "itemsize": size})',
        "",
        "",
    ]
    out += [f"{name} = {enums[name]}" for name in CONSTANTS]
    names = {value: name for name, value in enums.items() if name in statuses}
    listed = ", ".join(
        f'{value}: "{name.removeprefix("IBV_WC_")}"' for value, name in names.items()
    )
    out += ["", "WC_STATUS: dict[int, str] = {", *_wrapped(listed + ","), "}"]
    out.append('"""Completion status -> its name."""')
    return "\n".join([*out, ""])


def _wrapped(text: str) -> list[str]:
    """Entries of a table, in lines of 100 columns; a line ends after a comma."""
    glued = re.sub(r'(:|\("\w+",) ', r"\1~", text)
    lines = textwrap.wrap(
        glued, 100, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False
    )
    return [line.replace("~", " ") for line in lines]


def main() -> int:
    """Print `structs.py` for the installed header."""
    layouts, enums = probe()
    version = (
        subprocess.run(
            ["dpkg-query", "-W", "-f", "${Package} ${Version}", "libibverbs-dev"],
            capture_output=True,
            text=True,
        ).stdout
        or "unknown package"
    )
    machine = subprocess.run(
        ["cc", "-dumpmachine"], capture_output=True, text=True, check=True
    ).stdout.strip()
    digest = hashlib.sha256(HEADER.read_bytes()).hexdigest()
    sys.stdout.write(
        render(
            layouts,
            enums,
            enum_names(HEADER.read_text(), STATUSES),
            f"Provenance: Debian {version} (rdma-core), {HEADER.name} sha256 {digest},\n"
            f"compiled offsetof probe on {machine}.",
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
