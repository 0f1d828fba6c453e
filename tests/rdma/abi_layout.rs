//! Layouts and constants in `ibverbs::sys` against `<infiniband/verbs.h>`.

use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use mpix_rma::transport::rdma::ibverbs::sys::*;

macro_rules! places {
    ($checks:ident, $($name:ident { $($member:ident $(as $theirs:literal)?),* };)*) => {
        $($(
            let theirs = [$($theirs,)? stringify!($member)][0];
            let theirs = format!("offsetof(struct {}, {theirs})", stringify!($name));
            $checks.push((theirs, offset_of!($name, $member)));
        )*)*
    };
}

#[test]
fn structures_are_those_of_the_header() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        println!("SKIPPED: there is no infiniband/verbs.h");
        return;
    }
    let mut checks: Vec<(String, usize)> = Vec::new();
    places! { checks,
        ibv_device { node_type, transport_type };
        ibv_context { device, ops, cmd_fd, async_fd, abi_compat };
        ibv_device_attr_ex { orig_attr, comp_mask, odp_caps };
        ibv_odp_caps { general_caps, rc_odp_caps as "per_transport_caps.rc_odp_caps" };
        ibv_context_ops { poll_cq, post_srq_recv, post_send };
        ibv_cq { context };
        ibv_srq { context };
        ibv_qp { context, pd, send_cq, recv_cq, srq, handle, qp_num };
        ibv_mr { addr, length, handle, lkey, rkey };
        ibv_device_attr { node_guid, max_qp, max_qp_wr, max_sge, max_cqe, max_qp_rd_atom,
            max_qp_init_rd_atom, atomic_cap, max_srq_wr, phys_port_cnt };
        ibv_port_attr { state, active_mtu, gid_tbl_len, max_msg_sz, lid, link_layer, flags };
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data };
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all };
        ibv_srq_init_attr { srq_context, max_wr as "attr.max_wr", max_sge as "attr.max_sge",
            srq_limit as "attr.srq_limit" };
        ibv_ah_attr { grh, dlid, sl, is_global, port_num };
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class };
        ibv_qp_attr { qp_state, path_mtu, rq_psn, sq_psn, dest_qp_num, qp_access_flags, ah_attr,
            pkey_index, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout,
            retry_cnt, rnr_retry };
        ibv_async_event { element, event_type };
        ibv_sge { addr, length, lkey };
        ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr };
        ibv_recv_wr { wr_id, next, sg_list, num_sge };
        ibv_wc { wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, wc_flags };
    }
    for (name, size) in [
        ("ibv_context_ops", size_of::<ibv_context_ops>()),
        ("ibv_device_attr", size_of::<ibv_device_attr>()),
        ("ibv_port_attr", size_of::<ibv_port_attr>()),
        ("ibv_qp_attr", size_of::<ibv_qp_attr>()),
        ("ibv_qp_init_attr", size_of::<ibv_qp_init_attr>()),
        ("ibv_srq_init_attr", size_of::<ibv_srq_init_attr>()),
        ("ibv_ah_attr", size_of::<ibv_ah_attr>()),
        ("ibv_async_event", size_of::<ibv_async_event>()),
        ("ibv_send_wr", size_of::<ibv_send_wr>()),
        ("ibv_recv_wr", size_of::<ibv_recv_wr>()),
        ("ibv_wc", size_of::<ibv_wc>()),
    ] {
        checks.push((format!("sizeof(struct {name})"), size));
    }
    // `verbs_context` is known from its end.
    let known = |member: usize| offset_of!(verbs_context, context) - member;
    for (name, before) in [
        ("query_device_ex", known(offset_of!(verbs_context, query_device_ex))),
        ("sz", known(offset_of!(verbs_context, sz))),
    ] {
        checks.push((
            format!(
                "offsetof(struct verbs_context, context) - offsetof(struct verbs_context, {name})"
            ),
            before,
        ));
    }
    checks.push((
        "sizeof(struct verbs_context) - offsetof(struct verbs_context, query_device_ex)".into(),
        size_of::<verbs_context>(),
    ));
    let room = size_of::<ibv_device_attr_ex>();
    checks.push((format!("(sizeof(struct ibv_device_attr_ex) <= {room} ? {room} : 0)"), room));
    for (name, value) in [
        ("IBV_ACCESS_ON_DEMAND", IBV_ACCESS_ON_DEMAND),
        ("IBV_ODP_SUPPORT", IBV_ODP_SUPPORT as u32),
        ("IBV_ODP_SUPPORT_WRITE", IBV_ODP_SUPPORT_WRITE),
        ("IBV_ODP_SUPPORT_READ", IBV_ODP_SUPPORT_READ),
        ("IBV_ODP_SUPPORT_ATOMIC", IBV_ODP_SUPPORT_ATOMIC),
        ("IBV_QPT_RC", IBV_QPT_RC),
        ("IBV_QPS_RTS", IBV_QPS_RTS),
        ("IBV_QPS_ERR", IBV_QPS_ERR),
        ("IBV_TRANSPORT_IB", IBV_TRANSPORT_IB),
        ("IBV_QPF_GRH_REQUIRED", u32::from(IBV_QPF_GRH_REQUIRED)),
        ("IBV_EVENT_QP_ACCESS_ERR", IBV_EVENT_QP_ACCESS_ERR),
        ("IBV_EVENT_DEVICE_FATAL", IBV_EVENT_DEVICE_FATAL),
        ("IBV_EVENT_PORT_ERR", IBV_EVENT_PORT_ERR),
        ("IBV_EVENT_PKEY_CHANGE", IBV_EVENT_PKEY_CHANGE),
        ("IBV_EVENT_SRQ_ERR", IBV_EVENT_SRQ_ERR),
        ("IBV_EVENT_GID_CHANGE", IBV_EVENT_GID_CHANGE),
        ("IBV_WC_FATAL_ERR", IBV_WC_FATAL_ERR),
        ("IBV_WR_SEND_WITH_IMM", IBV_WR_SEND_WITH_IMM),
        ("IBV_WR_ATOMIC_FETCH_AND_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD),
        ("IBV_WC_RECV_RDMA_WITH_IMM", IBV_WC_RECV_RDMA_WITH_IMM),
        ("IBV_SEND_INLINE", IBV_SEND_INLINE),
        ("IBV_ACCESS_REMOTE_ATOMIC", IBV_ACCESS_REMOTE_ATOMIC),
        ("IBV_QP_MAX_DEST_RD_ATOMIC", IBV_QP_MAX_DEST_RD_ATOMIC),
        ("IBV_QP_DEST_QPN", IBV_QP_DEST_QPN),
        ("IBV_PORT_ACTIVE", IBV_PORT_ACTIVE),
        ("IBV_LINK_LAYER_ETHERNET", u32::from(IBV_LINK_LAYER_ETHERNET)),
    ] {
        checks.push((name.to_owned(), value as usize));
    }
    let text: String = checks
        .iter()
        .map(|(what, value)| format!("_Static_assert({what} == {value}, \"{what}\");\n"))
        .collect();
    let file = std::env::temp_dir().join(format!("mpix-layout-{}.c", std::process::id()));
    std::fs::write(&file, format!("#include <stddef.h>\n#include <infiniband/verbs.h>\n{text}"))
        .unwrap();
    // Structures of this processor's kind: it may differ from the C compiler's own.
    let compiler = std::env::var("MPIX_TEST_CC").ok().filter(|command| !command.is_empty());
    let compiler = compiler.as_deref().unwrap_or("cc");
    let mut words = compiler.split_whitespace();
    let done = Command::new(words.next().unwrap())
        .args(words)
        .args(["-fsyntax-only", "-std=c11"])
        .arg(&file)
        .output()
        .expect("a C compiler");
    std::fs::remove_file(&file).unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
