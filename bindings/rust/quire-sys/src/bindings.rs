/* Made by bindgen from include/quire: cargo build --features buildtime-bindgen. */

pub const QUIRE_VERSION_MAJOR: u32 = 0;
pub const QUIRE_VERSION_MINOR: u32 = 1;
pub const QUIRE_TOKEN_UNKNOWN: u32 = 4294967295;
pub const QUIRE_UNFINISHED_STEPS: u32 = 8;
pub const QUIRE_NO_HITS: u32 = 4294967295;
pub const QUIRE_MASK_ROOT: u32 = 4294967295;
pub type quire_status = i32;
pub const QUIRE_OK: _bindgen_ty_1 = 0;
pub const QUIRE_S_INCOMPLETE: _bindgen_ty_1 = 1;
pub const QUIRE_S_NO_BLOCKS: _bindgen_ty_1 = 2;
pub const QUIRE_S_TIMEOUT: _bindgen_ty_1 = 3;
pub const QUIRE_E_ARG: _bindgen_ty_1 = -1;
pub const QUIRE_E_STALE: _bindgen_ty_1 = -2;
pub const QUIRE_E_BUSY: _bindgen_ty_1 = -3;
pub const QUIRE_E_UNSUPPORTED: _bindgen_ty_1 = -4;
pub const QUIRE_E_STRUCT: _bindgen_ty_1 = -5;
pub const QUIRE_E_HOST_MEMORY: _bindgen_ty_1 = -6;
pub const QUIRE_E_DEVICE_MEMORY: _bindgen_ty_1 = -7;
pub const QUIRE_E_DEVICE_LOST: _bindgen_ty_1 = -8;
pub const QUIRE_E_BACKEND: _bindgen_ty_1 = -9;
pub const QUIRE_E_INCOMPATIBLE: _bindgen_ty_1 = -10;
pub const QUIRE_E_REENTRANT: _bindgen_ty_1 = -11;
pub const QUIRE_E_FORKED: _bindgen_ty_1 = -12;
pub const QUIRE_E_LIMIT: _bindgen_ty_1 = -13;
pub const QUIRE_E_OS: _bindgen_ty_1 = -14;
pub const QUIRE_E_INTERNAL: _bindgen_ty_1 = -15;
pub type _bindgen_ty_1 = i32;
pub const QUIRE_DOMAIN_QUIRE: _bindgen_ty_2 = 0;
pub const QUIRE_DOMAIN_OS: _bindgen_ty_2 = 1;
pub const QUIRE_DOMAIN_BACKEND: _bindgen_ty_2 = 2;
pub type _bindgen_ty_2 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_error {
    pub struct_size: u32,
    pub status: quire_status,
    pub domain: u32,
    pub reserved0: u32,
    pub native_code: i64,
    pub backend: [::core::ffi::c_char; 32usize],
    pub message: [::core::ffi::c_char; 480usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_error"][::core::mem::size_of::<quire_error>() - 536usize];
    ["Alignment of quire_error"][::core::mem::align_of::<quire_error>() - 8usize];
    [
        "Offset of field: quire_error::struct_size",
    ][::core::mem::offset_of!(quire_error, struct_size) - 0usize];
    [
        "Offset of field: quire_error::status",
    ][::core::mem::offset_of!(quire_error, status) - 4usize];
    [
        "Offset of field: quire_error::domain",
    ][::core::mem::offset_of!(quire_error, domain) - 8usize];
    [
        "Offset of field: quire_error::reserved0",
    ][::core::mem::offset_of!(quire_error, reserved0) - 12usize];
    [
        "Offset of field: quire_error::native_code",
    ][::core::mem::offset_of!(quire_error, native_code) - 16usize];
    [
        "Offset of field: quire_error::backend",
    ][::core::mem::offset_of!(quire_error, backend) - 24usize];
    [
        "Offset of field: quire_error::message",
    ][::core::mem::offset_of!(quire_error, message) - 56usize];
};
impl Default for quire_error {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_chain {
    pub struct_type: u32,
    pub struct_size: u32,
    pub next: *const quire_chain,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_chain"][::core::mem::size_of::<quire_chain>() - 16usize];
    ["Alignment of quire_chain"][::core::mem::align_of::<quire_chain>() - 8usize];
    [
        "Offset of field: quire_chain::struct_type",
    ][::core::mem::offset_of!(quire_chain, struct_type) - 0usize];
    [
        "Offset of field: quire_chain::struct_size",
    ][::core::mem::offset_of!(quire_chain, struct_size) - 4usize];
    [
        "Offset of field: quire_chain::next",
    ][::core::mem::offset_of!(quire_chain, next) - 8usize];
};
impl Default for quire_chain {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_STRUCT_VULKAN_DEVICE: _bindgen_ty_3 = 768;
pub type _bindgen_ty_3 = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct quire_native {
    pub kind: u32,
    pub reserved0: u32,
    pub value: u64,
    pub aux0: u64,
    pub aux1: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_native"][::core::mem::size_of::<quire_native>() - 32usize];
    ["Alignment of quire_native"][::core::mem::align_of::<quire_native>() - 8usize];
    [
        "Offset of field: quire_native::kind",
    ][::core::mem::offset_of!(quire_native, kind) - 0usize];
    [
        "Offset of field: quire_native::reserved0",
    ][::core::mem::offset_of!(quire_native, reserved0) - 4usize];
    [
        "Offset of field: quire_native::value",
    ][::core::mem::offset_of!(quire_native, value) - 8usize];
    [
        "Offset of field: quire_native::aux0",
    ][::core::mem::offset_of!(quire_native, aux0) - 16usize];
    [
        "Offset of field: quire_native::aux1",
    ][::core::mem::offset_of!(quire_native, aux1) - 24usize];
};
pub const QUIRE_NATIVE_NONE: _bindgen_ty_4 = 0;
pub const QUIRE_NATIVE_CUDA_STREAM: _bindgen_ty_4 = 256;
pub const QUIRE_NATIVE_CUDA_EVENT: _bindgen_ty_4 = 257;
pub const QUIRE_NATIVE_HIP_STREAM: _bindgen_ty_4 = 512;
pub const QUIRE_NATIVE_HIP_EVENT: _bindgen_ty_4 = 513;
pub const QUIRE_NATIVE_VULKAN_QUEUE: _bindgen_ty_4 = 768;
pub const QUIRE_NATIVE_VULKAN_SEMAPHORE: _bindgen_ty_4 = 769;
pub type _bindgen_ty_4 = u32;
pub const QUIRE_DTYPE_I4: _bindgen_ty_5 = 1025;
pub const QUIRE_DTYPE_I8: _bindgen_ty_5 = 2049;
pub const QUIRE_DTYPE_F16: _bindgen_ty_5 = 135169;
pub const QUIRE_DTYPE_F32: _bindgen_ty_5 = 139265;
pub const QUIRE_DTYPE_BF16: _bindgen_ty_5 = 266241;
pub const QUIRE_DTYPE_F8_E4M3FN: _bindgen_ty_5 = 657409;
pub const QUIRE_DTYPE_F8_E5M2: _bindgen_ty_5 = 788481;
pub type _bindgen_ty_5 = u32;
pub type quire_seq = u64;
pub type quire_step = u64;
pub type quire_namespace = u64;
pub type quire_lease = u64;
pub type quire_token = u32;
pub type quire_task = ::core::option::Option<
    unsafe extern "C" fn(context: *mut ::core::ffi::c_void, index: u32),
>;
pub type quire_run_tasks = ::core::option::Option<
    unsafe extern "C" fn(
        user: *mut ::core::ffi::c_void,
        task_count: u32,
        task: quire_task,
        context: *mut ::core::ffi::c_void,
    ),
>;
#[repr(C)]
#[derive(Debug)]
pub struct quire_instance {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct quire_device {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct quire_queue {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct quire_fence {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct quire_memory {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct quire_cache {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct quire_batch {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_abandon_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub device_bytes: u64,
    pub host_bytes: u64,
    pub engine_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_abandon_info",
    ][::core::mem::size_of::<quire_abandon_info>() - 40usize];
    [
        "Alignment of quire_abandon_info",
    ][::core::mem::align_of::<quire_abandon_info>() - 8usize];
    [
        "Offset of field: quire_abandon_info::struct_size",
    ][::core::mem::offset_of!(quire_abandon_info, struct_size) - 0usize];
    [
        "Offset of field: quire_abandon_info::flags",
    ][::core::mem::offset_of!(quire_abandon_info, flags) - 4usize];
    [
        "Offset of field: quire_abandon_info::next",
    ][::core::mem::offset_of!(quire_abandon_info, next) - 8usize];
    [
        "Offset of field: quire_abandon_info::device_bytes",
    ][::core::mem::offset_of!(quire_abandon_info, device_bytes) - 16usize];
    [
        "Offset of field: quire_abandon_info::host_bytes",
    ][::core::mem::offset_of!(quire_abandon_info, host_bytes) - 24usize];
    [
        "Offset of field: quire_abandon_info::engine_bytes",
    ][::core::mem::offset_of!(quire_abandon_info, engine_bytes) - 32usize];
};
impl Default for quire_abandon_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_ATTENTION_NOT_CAUSAL: _bindgen_ty_6 = 1;
pub const QUIRE_ATTENTION_BATCH_INVARIANT: _bindgen_ty_6 = 2;
pub const QUIRE_ATTENTION_MASK: _bindgen_ty_6 = 4;
pub const QUIRE_ATTENTION_SINK_LOGITS: _bindgen_ty_6 = 8;
pub type _bindgen_ty_6 = u32;
pub const QUIRE_ROPE_HALVES: _bindgen_ty_7 = 0;
pub const QUIRE_ROPE_PAIRS: _bindgen_ty_7 = 1;
pub type _bindgen_ty_7 = u32;
pub const QUIRE_ROPE_PLAIN: _bindgen_ty_8 = 0;
pub const QUIRE_ROPE_LINEAR: _bindgen_ty_8 = 1;
pub const QUIRE_ROPE_LLAMA3: _bindgen_ty_8 = 2;
pub const QUIRE_ROPE_YARN: _bindgen_ty_8 = 3;
pub type _bindgen_ty_8 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_rope_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub pairing: u32,
    pub rotated_dim: u32,
    pub scaling: u32,
    pub original_context: u32,
    pub base: f32,
    pub factor: f32,
    pub low_freq_factor: f32,
    pub high_freq_factor: f32,
    pub beta_fast: f32,
    pub beta_slow: f32,
    pub magnitude: f32,
    pub reserved0: u32,
    pub frequencies: *const f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_rope_desc"][::core::mem::size_of::<quire_rope_desc>() - 72usize];
    [
        "Alignment of quire_rope_desc",
    ][::core::mem::align_of::<quire_rope_desc>() - 8usize];
    [
        "Offset of field: quire_rope_desc::struct_size",
    ][::core::mem::offset_of!(quire_rope_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_rope_desc::flags",
    ][::core::mem::offset_of!(quire_rope_desc, flags) - 4usize];
    [
        "Offset of field: quire_rope_desc::next",
    ][::core::mem::offset_of!(quire_rope_desc, next) - 8usize];
    [
        "Offset of field: quire_rope_desc::pairing",
    ][::core::mem::offset_of!(quire_rope_desc, pairing) - 16usize];
    [
        "Offset of field: quire_rope_desc::rotated_dim",
    ][::core::mem::offset_of!(quire_rope_desc, rotated_dim) - 20usize];
    [
        "Offset of field: quire_rope_desc::scaling",
    ][::core::mem::offset_of!(quire_rope_desc, scaling) - 24usize];
    [
        "Offset of field: quire_rope_desc::original_context",
    ][::core::mem::offset_of!(quire_rope_desc, original_context) - 28usize];
    [
        "Offset of field: quire_rope_desc::base",
    ][::core::mem::offset_of!(quire_rope_desc, base) - 32usize];
    [
        "Offset of field: quire_rope_desc::factor",
    ][::core::mem::offset_of!(quire_rope_desc, factor) - 36usize];
    [
        "Offset of field: quire_rope_desc::low_freq_factor",
    ][::core::mem::offset_of!(quire_rope_desc, low_freq_factor) - 40usize];
    [
        "Offset of field: quire_rope_desc::high_freq_factor",
    ][::core::mem::offset_of!(quire_rope_desc, high_freq_factor) - 44usize];
    [
        "Offset of field: quire_rope_desc::beta_fast",
    ][::core::mem::offset_of!(quire_rope_desc, beta_fast) - 48usize];
    [
        "Offset of field: quire_rope_desc::beta_slow",
    ][::core::mem::offset_of!(quire_rope_desc, beta_slow) - 52usize];
    [
        "Offset of field: quire_rope_desc::magnitude",
    ][::core::mem::offset_of!(quire_rope_desc, magnitude) - 56usize];
    [
        "Offset of field: quire_rope_desc::reserved0",
    ][::core::mem::offset_of!(quire_rope_desc, reserved0) - 60usize];
    [
        "Offset of field: quire_rope_desc::frequencies",
    ][::core::mem::offset_of!(quire_rope_desc, frequencies) - 64usize];
};
impl Default for quire_rope_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_attention_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub q_heads: u32,
    pub q_dtype: u32,
    pub scale: f32,
    pub soft_cap: f32,
    pub alibi_slopes: *const f32,
    pub rope: *const quire_rope_desc,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_attention_desc",
    ][::core::mem::size_of::<quire_attention_desc>() - 48usize];
    [
        "Alignment of quire_attention_desc",
    ][::core::mem::align_of::<quire_attention_desc>() - 8usize];
    [
        "Offset of field: quire_attention_desc::struct_size",
    ][::core::mem::offset_of!(quire_attention_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_attention_desc::flags",
    ][::core::mem::offset_of!(quire_attention_desc, flags) - 4usize];
    [
        "Offset of field: quire_attention_desc::next",
    ][::core::mem::offset_of!(quire_attention_desc, next) - 8usize];
    [
        "Offset of field: quire_attention_desc::q_heads",
    ][::core::mem::offset_of!(quire_attention_desc, q_heads) - 16usize];
    [
        "Offset of field: quire_attention_desc::q_dtype",
    ][::core::mem::offset_of!(quire_attention_desc, q_dtype) - 20usize];
    [
        "Offset of field: quire_attention_desc::scale",
    ][::core::mem::offset_of!(quire_attention_desc, scale) - 24usize];
    [
        "Offset of field: quire_attention_desc::soft_cap",
    ][::core::mem::offset_of!(quire_attention_desc, soft_cap) - 28usize];
    [
        "Offset of field: quire_attention_desc::alibi_slopes",
    ][::core::mem::offset_of!(quire_attention_desc, alibi_slopes) - 32usize];
    [
        "Offset of field: quire_attention_desc::rope",
    ][::core::mem::offset_of!(quire_attention_desc, rope) - 40usize];
};
impl Default for quire_attention_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_kv_args {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub k: u64,
    pub v: u64,
    pub layer: u32,
    pub dtype: u32,
    pub k_token_stride: i64,
    pub v_token_stride: i64,
    pub q: u64,
    pub q_token_stride: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_kv_args"][::core::mem::size_of::<quire_kv_args>() - 72usize];
    ["Alignment of quire_kv_args"][::core::mem::align_of::<quire_kv_args>() - 8usize];
    [
        "Offset of field: quire_kv_args::struct_size",
    ][::core::mem::offset_of!(quire_kv_args, struct_size) - 0usize];
    [
        "Offset of field: quire_kv_args::flags",
    ][::core::mem::offset_of!(quire_kv_args, flags) - 4usize];
    [
        "Offset of field: quire_kv_args::next",
    ][::core::mem::offset_of!(quire_kv_args, next) - 8usize];
    [
        "Offset of field: quire_kv_args::k",
    ][::core::mem::offset_of!(quire_kv_args, k) - 16usize];
    [
        "Offset of field: quire_kv_args::v",
    ][::core::mem::offset_of!(quire_kv_args, v) - 24usize];
    [
        "Offset of field: quire_kv_args::layer",
    ][::core::mem::offset_of!(quire_kv_args, layer) - 32usize];
    [
        "Offset of field: quire_kv_args::dtype",
    ][::core::mem::offset_of!(quire_kv_args, dtype) - 36usize];
    [
        "Offset of field: quire_kv_args::k_token_stride",
    ][::core::mem::offset_of!(quire_kv_args, k_token_stride) - 40usize];
    [
        "Offset of field: quire_kv_args::v_token_stride",
    ][::core::mem::offset_of!(quire_kv_args, v_token_stride) - 48usize];
    [
        "Offset of field: quire_kv_args::q",
    ][::core::mem::offset_of!(quire_kv_args, q) - 56usize];
    [
        "Offset of field: quire_kv_args::q_token_stride",
    ][::core::mem::offset_of!(quire_kv_args, q_token_stride) - 64usize];
};
impl Default for quire_kv_args {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_attend_args {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub q: u64,
    pub out: u64,
    pub lse: u64,
    pub layer: u32,
    pub reserved0: u32,
    pub q_token_stride: i64,
    pub out_token_stride: i64,
    pub sinks: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_attend_args"][::core::mem::size_of::<quire_attend_args>() - 72usize];
    [
        "Alignment of quire_attend_args",
    ][::core::mem::align_of::<quire_attend_args>() - 8usize];
    [
        "Offset of field: quire_attend_args::struct_size",
    ][::core::mem::offset_of!(quire_attend_args, struct_size) - 0usize];
    [
        "Offset of field: quire_attend_args::flags",
    ][::core::mem::offset_of!(quire_attend_args, flags) - 4usize];
    [
        "Offset of field: quire_attend_args::next",
    ][::core::mem::offset_of!(quire_attend_args, next) - 8usize];
    [
        "Offset of field: quire_attend_args::q",
    ][::core::mem::offset_of!(quire_attend_args, q) - 16usize];
    [
        "Offset of field: quire_attend_args::out",
    ][::core::mem::offset_of!(quire_attend_args, out) - 24usize];
    [
        "Offset of field: quire_attend_args::lse",
    ][::core::mem::offset_of!(quire_attend_args, lse) - 32usize];
    [
        "Offset of field: quire_attend_args::layer",
    ][::core::mem::offset_of!(quire_attend_args, layer) - 40usize];
    [
        "Offset of field: quire_attend_args::reserved0",
    ][::core::mem::offset_of!(quire_attend_args, reserved0) - 44usize];
    [
        "Offset of field: quire_attend_args::q_token_stride",
    ][::core::mem::offset_of!(quire_attend_args, q_token_stride) - 48usize];
    [
        "Offset of field: quire_attend_args::out_token_stride",
    ][::core::mem::offset_of!(quire_attend_args, out_token_stride) - 56usize];
    [
        "Offset of field: quire_attend_args::sinks",
    ][::core::mem::offset_of!(quire_attend_args, sinks) - 64usize];
};
impl Default for quire_attend_args {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_merge_args {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub parts: u64,
    pub lses: u64,
    pub out: u64,
    pub lse: u64,
    pub part_count: u32,
    pub token_count: u32,
    pub heads: u32,
    pub head_dim: u32,
    pub dtype: u32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_merge_args"][::core::mem::size_of::<quire_merge_args>() - 72usize];
    [
        "Alignment of quire_merge_args",
    ][::core::mem::align_of::<quire_merge_args>() - 8usize];
    [
        "Offset of field: quire_merge_args::struct_size",
    ][::core::mem::offset_of!(quire_merge_args, struct_size) - 0usize];
    [
        "Offset of field: quire_merge_args::flags",
    ][::core::mem::offset_of!(quire_merge_args, flags) - 4usize];
    [
        "Offset of field: quire_merge_args::next",
    ][::core::mem::offset_of!(quire_merge_args, next) - 8usize];
    [
        "Offset of field: quire_merge_args::parts",
    ][::core::mem::offset_of!(quire_merge_args, parts) - 16usize];
    [
        "Offset of field: quire_merge_args::lses",
    ][::core::mem::offset_of!(quire_merge_args, lses) - 24usize];
    [
        "Offset of field: quire_merge_args::out",
    ][::core::mem::offset_of!(quire_merge_args, out) - 32usize];
    [
        "Offset of field: quire_merge_args::lse",
    ][::core::mem::offset_of!(quire_merge_args, lse) - 40usize];
    [
        "Offset of field: quire_merge_args::part_count",
    ][::core::mem::offset_of!(quire_merge_args, part_count) - 48usize];
    [
        "Offset of field: quire_merge_args::token_count",
    ][::core::mem::offset_of!(quire_merge_args, token_count) - 52usize];
    [
        "Offset of field: quire_merge_args::heads",
    ][::core::mem::offset_of!(quire_merge_args, heads) - 56usize];
    [
        "Offset of field: quire_merge_args::head_dim",
    ][::core::mem::offset_of!(quire_merge_args, head_dim) - 60usize];
    [
        "Offset of field: quire_merge_args::dtype",
    ][::core::mem::offset_of!(quire_merge_args, dtype) - 64usize];
    [
        "Offset of field: quire_merge_args::reserved0",
    ][::core::mem::offset_of!(quire_merge_args, reserved0) - 68usize];
};
impl Default for quire_merge_args {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_VIEW_BLOCK_TABLE: _bindgen_ty_9 = 1;
pub const QUIRE_VIEW_CSR: _bindgen_ty_9 = 2;
pub const QUIRE_VIEW_SLOTS: _bindgen_ty_9 = 4;
pub const QUIRE_VIEW_CONTEXT_SLOTS: _bindgen_ty_9 = 8;
pub const QUIRE_VIEW_LENGTHS: _bindgen_ty_9 = 16;
pub const QUIRE_VIEW_POSITIONS: _bindgen_ty_9 = 32;
pub const QUIRE_VIEW_CU_Q: _bindgen_ty_9 = 64;
pub const QUIRE_VIEW_MASK: _bindgen_ty_9 = 128;
pub const QUIRE_VIEW_SHARED_PREFIX: _bindgen_ty_9 = 256;
pub type _bindgen_ty_9 = u32;
pub const QUIRE_BATCH_PAD_NULL_SLOT: _bindgen_ty_10 = 1;
pub const QUIRE_BATCH_SHARED_PREFIX: _bindgen_ty_10 = 2;
pub type _bindgen_ty_10 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_batch_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub max_rows: u32,
    pub max_blocks_per_row: u32,
    pub max_query_tokens: u32,
    pub max_context_tokens: u32,
    pub views: u32,
    pub attention_count: u32,
    pub attention_stride: u32,
    pub max_mask_words: u32,
    pub attention: *const quire_attention_desc,
    pub max_cross_tokens: u32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_batch_desc"][::core::mem::size_of::<quire_batch_desc>() - 64usize];
    [
        "Alignment of quire_batch_desc",
    ][::core::mem::align_of::<quire_batch_desc>() - 8usize];
    [
        "Offset of field: quire_batch_desc::struct_size",
    ][::core::mem::offset_of!(quire_batch_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_batch_desc::flags",
    ][::core::mem::offset_of!(quire_batch_desc, flags) - 4usize];
    [
        "Offset of field: quire_batch_desc::next",
    ][::core::mem::offset_of!(quire_batch_desc, next) - 8usize];
    [
        "Offset of field: quire_batch_desc::max_rows",
    ][::core::mem::offset_of!(quire_batch_desc, max_rows) - 16usize];
    [
        "Offset of field: quire_batch_desc::max_blocks_per_row",
    ][::core::mem::offset_of!(quire_batch_desc, max_blocks_per_row) - 20usize];
    [
        "Offset of field: quire_batch_desc::max_query_tokens",
    ][::core::mem::offset_of!(quire_batch_desc, max_query_tokens) - 24usize];
    [
        "Offset of field: quire_batch_desc::max_context_tokens",
    ][::core::mem::offset_of!(quire_batch_desc, max_context_tokens) - 28usize];
    [
        "Offset of field: quire_batch_desc::views",
    ][::core::mem::offset_of!(quire_batch_desc, views) - 32usize];
    [
        "Offset of field: quire_batch_desc::attention_count",
    ][::core::mem::offset_of!(quire_batch_desc, attention_count) - 36usize];
    [
        "Offset of field: quire_batch_desc::attention_stride",
    ][::core::mem::offset_of!(quire_batch_desc, attention_stride) - 40usize];
    [
        "Offset of field: quire_batch_desc::max_mask_words",
    ][::core::mem::offset_of!(quire_batch_desc, max_mask_words) - 44usize];
    [
        "Offset of field: quire_batch_desc::attention",
    ][::core::mem::offset_of!(quire_batch_desc, attention) - 48usize];
    [
        "Offset of field: quire_batch_desc::max_cross_tokens",
    ][::core::mem::offset_of!(quire_batch_desc, max_cross_tokens) - 56usize];
    [
        "Offset of field: quire_batch_desc::reserved0",
    ][::core::mem::offset_of!(quire_batch_desc, reserved0) - 60usize];
};
impl Default for quire_batch_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_batch_views {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub block_table: u64,
    pub csr_indptr: u64,
    pub csr_indices: u64,
    pub csr_last_page_len: u64,
    pub slots: u64,
    pub context_slots: u64,
    pub lengths: u64,
    pub positions: u64,
    pub cu_q: u64,
    pub block_table_stride: u32,
    pub row_count: u32,
    pub query_tokens: u32,
    pub max_length: u32,
    pub mask: u64,
    pub mask_rows: u64,
    pub mask_first: u64,
    pub shared_prefix: u64,
    pub write_tokens: u32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_batch_views",
    ][::core::mem::size_of::<quire_batch_views>() - 144usize];
    [
        "Alignment of quire_batch_views",
    ][::core::mem::align_of::<quire_batch_views>() - 8usize];
    [
        "Offset of field: quire_batch_views::struct_size",
    ][::core::mem::offset_of!(quire_batch_views, struct_size) - 0usize];
    [
        "Offset of field: quire_batch_views::flags",
    ][::core::mem::offset_of!(quire_batch_views, flags) - 4usize];
    [
        "Offset of field: quire_batch_views::next",
    ][::core::mem::offset_of!(quire_batch_views, next) - 8usize];
    [
        "Offset of field: quire_batch_views::block_table",
    ][::core::mem::offset_of!(quire_batch_views, block_table) - 16usize];
    [
        "Offset of field: quire_batch_views::csr_indptr",
    ][::core::mem::offset_of!(quire_batch_views, csr_indptr) - 24usize];
    [
        "Offset of field: quire_batch_views::csr_indices",
    ][::core::mem::offset_of!(quire_batch_views, csr_indices) - 32usize];
    [
        "Offset of field: quire_batch_views::csr_last_page_len",
    ][::core::mem::offset_of!(quire_batch_views, csr_last_page_len) - 40usize];
    [
        "Offset of field: quire_batch_views::slots",
    ][::core::mem::offset_of!(quire_batch_views, slots) - 48usize];
    [
        "Offset of field: quire_batch_views::context_slots",
    ][::core::mem::offset_of!(quire_batch_views, context_slots) - 56usize];
    [
        "Offset of field: quire_batch_views::lengths",
    ][::core::mem::offset_of!(quire_batch_views, lengths) - 64usize];
    [
        "Offset of field: quire_batch_views::positions",
    ][::core::mem::offset_of!(quire_batch_views, positions) - 72usize];
    [
        "Offset of field: quire_batch_views::cu_q",
    ][::core::mem::offset_of!(quire_batch_views, cu_q) - 80usize];
    [
        "Offset of field: quire_batch_views::block_table_stride",
    ][::core::mem::offset_of!(quire_batch_views, block_table_stride) - 88usize];
    [
        "Offset of field: quire_batch_views::row_count",
    ][::core::mem::offset_of!(quire_batch_views, row_count) - 92usize];
    [
        "Offset of field: quire_batch_views::query_tokens",
    ][::core::mem::offset_of!(quire_batch_views, query_tokens) - 96usize];
    [
        "Offset of field: quire_batch_views::max_length",
    ][::core::mem::offset_of!(quire_batch_views, max_length) - 100usize];
    [
        "Offset of field: quire_batch_views::mask",
    ][::core::mem::offset_of!(quire_batch_views, mask) - 104usize];
    [
        "Offset of field: quire_batch_views::mask_rows",
    ][::core::mem::offset_of!(quire_batch_views, mask_rows) - 112usize];
    [
        "Offset of field: quire_batch_views::mask_first",
    ][::core::mem::offset_of!(quire_batch_views, mask_first) - 120usize];
    [
        "Offset of field: quire_batch_views::shared_prefix",
    ][::core::mem::offset_of!(quire_batch_views, shared_prefix) - 128usize];
    [
        "Offset of field: quire_batch_views::write_tokens",
    ][::core::mem::offset_of!(quire_batch_views, write_tokens) - 136usize];
    [
        "Offset of field: quire_batch_views::reserved0",
    ][::core::mem::offset_of!(quire_batch_views, reserved0) - 140usize];
};
impl Default for quire_batch_views {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_GROUP_FULL: _bindgen_ty_11 = 0;
pub const QUIRE_GROUP_WINDOW: _bindgen_ty_11 = 1;
pub const QUIRE_GROUP_CHUNKED: _bindgen_ty_11 = 2;
pub const QUIRE_GROUP_LATENT: _bindgen_ty_11 = 3;
pub const QUIRE_GROUP_CROSS: _bindgen_ty_11 = 4;
pub const QUIRE_GROUP_RECURRENT: _bindgen_ty_11 = 5;
pub type _bindgen_ty_11 = u32;
pub const QUIRE_SCALE_NONE: _bindgen_ty_12 = 0;
pub const QUIRE_SCALE_TENSOR: _bindgen_ty_12 = 1;
pub const QUIRE_SCALE_HEAD: _bindgen_ty_12 = 2;
pub const QUIRE_SCALE_TOKEN_HEAD: _bindgen_ty_12 = 3;
pub type _bindgen_ty_12 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_group_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub kind: u32,
    pub window: u32,
    pub layer_count: u32,
    pub kv_heads: u32,
    pub k_head_dim: u32,
    pub v_head_dim: u32,
    pub k_dtype: u32,
    pub v_dtype: u32,
    pub blocks: u32,
    pub sink_tokens: u32,
    pub k_scale: u32,
    pub v_scale: u32,
    pub block_tokens: u32,
    pub state_interval: u32,
    pub draft_states: u32,
    pub opaque_bytes: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_group_desc"][::core::mem::size_of::<quire_group_desc>() - 80usize];
    [
        "Alignment of quire_group_desc",
    ][::core::mem::align_of::<quire_group_desc>() - 8usize];
    [
        "Offset of field: quire_group_desc::struct_size",
    ][::core::mem::offset_of!(quire_group_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_group_desc::flags",
    ][::core::mem::offset_of!(quire_group_desc, flags) - 4usize];
    [
        "Offset of field: quire_group_desc::next",
    ][::core::mem::offset_of!(quire_group_desc, next) - 8usize];
    [
        "Offset of field: quire_group_desc::kind",
    ][::core::mem::offset_of!(quire_group_desc, kind) - 16usize];
    [
        "Offset of field: quire_group_desc::window",
    ][::core::mem::offset_of!(quire_group_desc, window) - 20usize];
    [
        "Offset of field: quire_group_desc::layer_count",
    ][::core::mem::offset_of!(quire_group_desc, layer_count) - 24usize];
    [
        "Offset of field: quire_group_desc::kv_heads",
    ][::core::mem::offset_of!(quire_group_desc, kv_heads) - 28usize];
    [
        "Offset of field: quire_group_desc::k_head_dim",
    ][::core::mem::offset_of!(quire_group_desc, k_head_dim) - 32usize];
    [
        "Offset of field: quire_group_desc::v_head_dim",
    ][::core::mem::offset_of!(quire_group_desc, v_head_dim) - 36usize];
    [
        "Offset of field: quire_group_desc::k_dtype",
    ][::core::mem::offset_of!(quire_group_desc, k_dtype) - 40usize];
    [
        "Offset of field: quire_group_desc::v_dtype",
    ][::core::mem::offset_of!(quire_group_desc, v_dtype) - 44usize];
    [
        "Offset of field: quire_group_desc::blocks",
    ][::core::mem::offset_of!(quire_group_desc, blocks) - 48usize];
    [
        "Offset of field: quire_group_desc::sink_tokens",
    ][::core::mem::offset_of!(quire_group_desc, sink_tokens) - 52usize];
    [
        "Offset of field: quire_group_desc::k_scale",
    ][::core::mem::offset_of!(quire_group_desc, k_scale) - 56usize];
    [
        "Offset of field: quire_group_desc::v_scale",
    ][::core::mem::offset_of!(quire_group_desc, v_scale) - 60usize];
    [
        "Offset of field: quire_group_desc::block_tokens",
    ][::core::mem::offset_of!(quire_group_desc, block_tokens) - 64usize];
    [
        "Offset of field: quire_group_desc::state_interval",
    ][::core::mem::offset_of!(quire_group_desc, state_interval) - 68usize];
    [
        "Offset of field: quire_group_desc::draft_states",
    ][::core::mem::offset_of!(quire_group_desc, draft_states) - 72usize];
    [
        "Offset of field: quire_group_desc::opaque_bytes",
    ][::core::mem::offset_of!(quire_group_desc, opaque_bytes) - 76usize];
};
impl Default for quire_group_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_shard_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub device: *mut quire_device,
    pub layer_begin: u32,
    pub layer_count: u32,
    pub head_begin: u32,
    pub head_count: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_shard_desc"][::core::mem::size_of::<quire_shard_desc>() - 40usize];
    [
        "Alignment of quire_shard_desc",
    ][::core::mem::align_of::<quire_shard_desc>() - 8usize];
    [
        "Offset of field: quire_shard_desc::struct_size",
    ][::core::mem::offset_of!(quire_shard_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_shard_desc::flags",
    ][::core::mem::offset_of!(quire_shard_desc, flags) - 4usize];
    [
        "Offset of field: quire_shard_desc::next",
    ][::core::mem::offset_of!(quire_shard_desc, next) - 8usize];
    [
        "Offset of field: quire_shard_desc::device",
    ][::core::mem::offset_of!(quire_shard_desc, device) - 16usize];
    [
        "Offset of field: quire_shard_desc::layer_begin",
    ][::core::mem::offset_of!(quire_shard_desc, layer_begin) - 24usize];
    [
        "Offset of field: quire_shard_desc::layer_count",
    ][::core::mem::offset_of!(quire_shard_desc, layer_count) - 28usize];
    [
        "Offset of field: quire_shard_desc::head_begin",
    ][::core::mem::offset_of!(quire_shard_desc, head_begin) - 32usize];
    [
        "Offset of field: quire_shard_desc::head_count",
    ][::core::mem::offset_of!(quire_shard_desc, head_count) - 36usize];
};
impl Default for quire_shard_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_CACHE_NO_PREFIX: _bindgen_ty_13 = 1;
pub const QUIRE_CACHE_FIXED_HASH: _bindgen_ty_13 = 2;
pub const QUIRE_CACHE_LOG: _bindgen_ty_13 = 4;
pub const QUIRE_CACHE_FOLLOWER: _bindgen_ty_13 = 8;
pub const QUIRE_CACHE_CALIBRATE: _bindgen_ty_13 = 16;
pub const QUIRE_CACHE_ZERO_ON_FREE: _bindgen_ty_13 = 32;
pub const QUIRE_CACHE_AUDIT: _bindgen_ty_13 = 64;
pub const QUIRE_CACHE_EVENTS: _bindgen_ty_13 = 128;
pub const QUIRE_CACHE_EVENT_TOKENS: _bindgen_ty_13 = 256;
pub const QUIRE_CACHE_HOST_PREFIXES: _bindgen_ty_13 = 512;
pub const QUIRE_CACHE_ONE_POOL: _bindgen_ty_13 = 1024;
pub const QUIRE_CACHE_LEASES_ONLY: _bindgen_ty_13 = 2048;
pub const QUIRE_CACHE_PARTIAL_HITS: _bindgen_ty_13 = 4096;
pub type _bindgen_ty_13 = u32;
pub const QUIRE_EVICT_LRU: _bindgen_ty_14 = 0;
pub type _bindgen_ty_14 = u32;
pub const QUIRE_VICTIM_NEWEST: _bindgen_ty_15 = 0;
pub const QUIRE_VICTIM_PRIORITY: _bindgen_ty_15 = 1;
pub type _bindgen_ty_15 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_cache_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub shards: *const quire_shard_desc,
    pub groups: *const quire_group_desc,
    pub layer_groups: *const u32,
    pub shard_count: u32,
    pub shard_stride: u32,
    pub group_count: u32,
    pub group_stride: u32,
    pub block_tokens: u32,
    pub max_sequences: u32,
    pub max_sequence_tokens: u32,
    pub blocks: u32,
    pub pool_bytes: u64,
    pub reserve_bytes: u64,
    pub pool_fraction: f32,
    pub watermark_blocks: u32,
    pub host_bytes: u64,
    pub host_blocks: u32,
    pub eviction: u32,
    pub victim: u32,
    pub calibration_margin: f32,
    pub hash_seed: u64,
    pub swap_bytes_per_second: f32,
    pub prefill_tokens_per_second: f32,
    pub calibration: *const ::core::ffi::c_void,
    pub calibration_bytes: u64,
    pub key_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_cache_desc"][::core::mem::size_of::<quire_cache_desc>() - 160usize];
    [
        "Alignment of quire_cache_desc",
    ][::core::mem::align_of::<quire_cache_desc>() - 8usize];
    [
        "Offset of field: quire_cache_desc::struct_size",
    ][::core::mem::offset_of!(quire_cache_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_cache_desc::flags",
    ][::core::mem::offset_of!(quire_cache_desc, flags) - 4usize];
    [
        "Offset of field: quire_cache_desc::next",
    ][::core::mem::offset_of!(quire_cache_desc, next) - 8usize];
    [
        "Offset of field: quire_cache_desc::shards",
    ][::core::mem::offset_of!(quire_cache_desc, shards) - 16usize];
    [
        "Offset of field: quire_cache_desc::groups",
    ][::core::mem::offset_of!(quire_cache_desc, groups) - 24usize];
    [
        "Offset of field: quire_cache_desc::layer_groups",
    ][::core::mem::offset_of!(quire_cache_desc, layer_groups) - 32usize];
    [
        "Offset of field: quire_cache_desc::shard_count",
    ][::core::mem::offset_of!(quire_cache_desc, shard_count) - 40usize];
    [
        "Offset of field: quire_cache_desc::shard_stride",
    ][::core::mem::offset_of!(quire_cache_desc, shard_stride) - 44usize];
    [
        "Offset of field: quire_cache_desc::group_count",
    ][::core::mem::offset_of!(quire_cache_desc, group_count) - 48usize];
    [
        "Offset of field: quire_cache_desc::group_stride",
    ][::core::mem::offset_of!(quire_cache_desc, group_stride) - 52usize];
    [
        "Offset of field: quire_cache_desc::block_tokens",
    ][::core::mem::offset_of!(quire_cache_desc, block_tokens) - 56usize];
    [
        "Offset of field: quire_cache_desc::max_sequences",
    ][::core::mem::offset_of!(quire_cache_desc, max_sequences) - 60usize];
    [
        "Offset of field: quire_cache_desc::max_sequence_tokens",
    ][::core::mem::offset_of!(quire_cache_desc, max_sequence_tokens) - 64usize];
    [
        "Offset of field: quire_cache_desc::blocks",
    ][::core::mem::offset_of!(quire_cache_desc, blocks) - 68usize];
    [
        "Offset of field: quire_cache_desc::pool_bytes",
    ][::core::mem::offset_of!(quire_cache_desc, pool_bytes) - 72usize];
    [
        "Offset of field: quire_cache_desc::reserve_bytes",
    ][::core::mem::offset_of!(quire_cache_desc, reserve_bytes) - 80usize];
    [
        "Offset of field: quire_cache_desc::pool_fraction",
    ][::core::mem::offset_of!(quire_cache_desc, pool_fraction) - 88usize];
    [
        "Offset of field: quire_cache_desc::watermark_blocks",
    ][::core::mem::offset_of!(quire_cache_desc, watermark_blocks) - 92usize];
    [
        "Offset of field: quire_cache_desc::host_bytes",
    ][::core::mem::offset_of!(quire_cache_desc, host_bytes) - 96usize];
    [
        "Offset of field: quire_cache_desc::host_blocks",
    ][::core::mem::offset_of!(quire_cache_desc, host_blocks) - 104usize];
    [
        "Offset of field: quire_cache_desc::eviction",
    ][::core::mem::offset_of!(quire_cache_desc, eviction) - 108usize];
    [
        "Offset of field: quire_cache_desc::victim",
    ][::core::mem::offset_of!(quire_cache_desc, victim) - 112usize];
    [
        "Offset of field: quire_cache_desc::calibration_margin",
    ][::core::mem::offset_of!(quire_cache_desc, calibration_margin) - 116usize];
    [
        "Offset of field: quire_cache_desc::hash_seed",
    ][::core::mem::offset_of!(quire_cache_desc, hash_seed) - 120usize];
    [
        "Offset of field: quire_cache_desc::swap_bytes_per_second",
    ][::core::mem::offset_of!(quire_cache_desc, swap_bytes_per_second) - 128usize];
    [
        "Offset of field: quire_cache_desc::prefill_tokens_per_second",
    ][::core::mem::offset_of!(quire_cache_desc, prefill_tokens_per_second) - 132usize];
    [
        "Offset of field: quire_cache_desc::calibration",
    ][::core::mem::offset_of!(quire_cache_desc, calibration) - 136usize];
    [
        "Offset of field: quire_cache_desc::calibration_bytes",
    ][::core::mem::offset_of!(quire_cache_desc, calibration_bytes) - 144usize];
    [
        "Offset of field: quire_cache_desc::key_bytes",
    ][::core::mem::offset_of!(quire_cache_desc, key_bytes) - 152usize];
};
impl Default for quire_cache_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_cache_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub group_count: u32,
    pub layer_count: u32,
    pub block_tokens: u32,
    pub shard_count: u32,
    pub pool_tokens: u64,
    pub max_sequences: u64,
    pub pool_bytes: u64,
    pub host_bytes: u64,
    pub span_tokens: u32,
    pub span_blocks: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_cache_info"][::core::mem::size_of::<quire_cache_info>() - 72usize];
    [
        "Alignment of quire_cache_info",
    ][::core::mem::align_of::<quire_cache_info>() - 8usize];
    [
        "Offset of field: quire_cache_info::struct_size",
    ][::core::mem::offset_of!(quire_cache_info, struct_size) - 0usize];
    [
        "Offset of field: quire_cache_info::flags",
    ][::core::mem::offset_of!(quire_cache_info, flags) - 4usize];
    [
        "Offset of field: quire_cache_info::next",
    ][::core::mem::offset_of!(quire_cache_info, next) - 8usize];
    [
        "Offset of field: quire_cache_info::group_count",
    ][::core::mem::offset_of!(quire_cache_info, group_count) - 16usize];
    [
        "Offset of field: quire_cache_info::layer_count",
    ][::core::mem::offset_of!(quire_cache_info, layer_count) - 20usize];
    [
        "Offset of field: quire_cache_info::block_tokens",
    ][::core::mem::offset_of!(quire_cache_info, block_tokens) - 24usize];
    [
        "Offset of field: quire_cache_info::shard_count",
    ][::core::mem::offset_of!(quire_cache_info, shard_count) - 28usize];
    [
        "Offset of field: quire_cache_info::pool_tokens",
    ][::core::mem::offset_of!(quire_cache_info, pool_tokens) - 32usize];
    [
        "Offset of field: quire_cache_info::max_sequences",
    ][::core::mem::offset_of!(quire_cache_info, max_sequences) - 40usize];
    [
        "Offset of field: quire_cache_info::pool_bytes",
    ][::core::mem::offset_of!(quire_cache_info, pool_bytes) - 48usize];
    [
        "Offset of field: quire_cache_info::host_bytes",
    ][::core::mem::offset_of!(quire_cache_info, host_bytes) - 56usize];
    [
        "Offset of field: quire_cache_info::span_tokens",
    ][::core::mem::offset_of!(quire_cache_info, span_tokens) - 64usize];
    [
        "Offset of field: quire_cache_info::span_blocks",
    ][::core::mem::offset_of!(quire_cache_info, span_blocks) - 68usize];
};
impl Default for quire_cache_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_pool_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub address: u64,
    pub size_bytes: u64,
    pub block_stride: i64,
    pub layer_stride: i64,
    pub v_offset: i64,
    pub k_head_stride: i64,
    pub k_token_stride: i64,
    pub v_head_stride: i64,
    pub v_token_stride: i64,
    pub blocks: u32,
    pub block_tokens: u32,
    pub host_blocks: u32,
    pub reserved0: u32,
    pub layer_begin: u32,
    pub layer_count: u32,
    pub head_begin: u32,
    pub head_count: u32,
    pub k_scale_offset: i64,
    pub v_scale_offset: i64,
    pub scale_head_stride: i64,
    pub scales: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_pool_info"][::core::mem::size_of::<quire_pool_info>() - 152usize];
    [
        "Alignment of quire_pool_info",
    ][::core::mem::align_of::<quire_pool_info>() - 8usize];
    [
        "Offset of field: quire_pool_info::struct_size",
    ][::core::mem::offset_of!(quire_pool_info, struct_size) - 0usize];
    [
        "Offset of field: quire_pool_info::flags",
    ][::core::mem::offset_of!(quire_pool_info, flags) - 4usize];
    [
        "Offset of field: quire_pool_info::next",
    ][::core::mem::offset_of!(quire_pool_info, next) - 8usize];
    [
        "Offset of field: quire_pool_info::address",
    ][::core::mem::offset_of!(quire_pool_info, address) - 16usize];
    [
        "Offset of field: quire_pool_info::size_bytes",
    ][::core::mem::offset_of!(quire_pool_info, size_bytes) - 24usize];
    [
        "Offset of field: quire_pool_info::block_stride",
    ][::core::mem::offset_of!(quire_pool_info, block_stride) - 32usize];
    [
        "Offset of field: quire_pool_info::layer_stride",
    ][::core::mem::offset_of!(quire_pool_info, layer_stride) - 40usize];
    [
        "Offset of field: quire_pool_info::v_offset",
    ][::core::mem::offset_of!(quire_pool_info, v_offset) - 48usize];
    [
        "Offset of field: quire_pool_info::k_head_stride",
    ][::core::mem::offset_of!(quire_pool_info, k_head_stride) - 56usize];
    [
        "Offset of field: quire_pool_info::k_token_stride",
    ][::core::mem::offset_of!(quire_pool_info, k_token_stride) - 64usize];
    [
        "Offset of field: quire_pool_info::v_head_stride",
    ][::core::mem::offset_of!(quire_pool_info, v_head_stride) - 72usize];
    [
        "Offset of field: quire_pool_info::v_token_stride",
    ][::core::mem::offset_of!(quire_pool_info, v_token_stride) - 80usize];
    [
        "Offset of field: quire_pool_info::blocks",
    ][::core::mem::offset_of!(quire_pool_info, blocks) - 88usize];
    [
        "Offset of field: quire_pool_info::block_tokens",
    ][::core::mem::offset_of!(quire_pool_info, block_tokens) - 92usize];
    [
        "Offset of field: quire_pool_info::host_blocks",
    ][::core::mem::offset_of!(quire_pool_info, host_blocks) - 96usize];
    [
        "Offset of field: quire_pool_info::reserved0",
    ][::core::mem::offset_of!(quire_pool_info, reserved0) - 100usize];
    [
        "Offset of field: quire_pool_info::layer_begin",
    ][::core::mem::offset_of!(quire_pool_info, layer_begin) - 104usize];
    [
        "Offset of field: quire_pool_info::layer_count",
    ][::core::mem::offset_of!(quire_pool_info, layer_count) - 108usize];
    [
        "Offset of field: quire_pool_info::head_begin",
    ][::core::mem::offset_of!(quire_pool_info, head_begin) - 112usize];
    [
        "Offset of field: quire_pool_info::head_count",
    ][::core::mem::offset_of!(quire_pool_info, head_count) - 116usize];
    [
        "Offset of field: quire_pool_info::k_scale_offset",
    ][::core::mem::offset_of!(quire_pool_info, k_scale_offset) - 120usize];
    [
        "Offset of field: quire_pool_info::v_scale_offset",
    ][::core::mem::offset_of!(quire_pool_info, v_scale_offset) - 128usize];
    [
        "Offset of field: quire_pool_info::scale_head_stride",
    ][::core::mem::offset_of!(quire_pool_info, scale_head_stride) - 136usize];
    [
        "Offset of field: quire_pool_info::scales",
    ][::core::mem::offset_of!(quire_pool_info, scales) - 144usize];
};
impl Default for quire_pool_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_cache_stats {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub prefix_cache_queries: u64,
    pub prefix_cache_hits: u64,
    pub num_preemptions: u64,
    pub preemptions_swap: u64,
    pub preemptions_recompute: u64,
    pub tokens_preempted: u64,
    pub evictions: u64,
    pub copies_on_write: u64,
    pub blocks_swapped_out: u64,
    pub blocks_swapped_in: u64,
    pub forks: u64,
    pub steps: u64,
    pub bytes_hashed: u64,
    pub bytes_compared: u64,
    pub sequences: u64,
    pub sequences_lost: u64,
    pub host_blocks_used: u64,
    pub blocks_total: u64,
    pub blocks_free: u64,
    pub blocks_cached: u64,
    pub blocks_held: u64,
    pub nodes: u64,
    pub kv_cache_usage_perc: f64,
    pub migrations: u64,
    pub bytes_migrated: u64,
    pub blocks_demoted: u64,
    pub blocks_promoted: u64,
    pub host_blocks_cached: u64,
    pub leases: u64,
    pub blocks_leased: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_cache_stats",
    ][::core::mem::size_of::<quire_cache_stats>() - 256usize];
    [
        "Alignment of quire_cache_stats",
    ][::core::mem::align_of::<quire_cache_stats>() - 8usize];
    [
        "Offset of field: quire_cache_stats::struct_size",
    ][::core::mem::offset_of!(quire_cache_stats, struct_size) - 0usize];
    [
        "Offset of field: quire_cache_stats::flags",
    ][::core::mem::offset_of!(quire_cache_stats, flags) - 4usize];
    [
        "Offset of field: quire_cache_stats::next",
    ][::core::mem::offset_of!(quire_cache_stats, next) - 8usize];
    [
        "Offset of field: quire_cache_stats::prefix_cache_queries",
    ][::core::mem::offset_of!(quire_cache_stats, prefix_cache_queries) - 16usize];
    [
        "Offset of field: quire_cache_stats::prefix_cache_hits",
    ][::core::mem::offset_of!(quire_cache_stats, prefix_cache_hits) - 24usize];
    [
        "Offset of field: quire_cache_stats::num_preemptions",
    ][::core::mem::offset_of!(quire_cache_stats, num_preemptions) - 32usize];
    [
        "Offset of field: quire_cache_stats::preemptions_swap",
    ][::core::mem::offset_of!(quire_cache_stats, preemptions_swap) - 40usize];
    [
        "Offset of field: quire_cache_stats::preemptions_recompute",
    ][::core::mem::offset_of!(quire_cache_stats, preemptions_recompute) - 48usize];
    [
        "Offset of field: quire_cache_stats::tokens_preempted",
    ][::core::mem::offset_of!(quire_cache_stats, tokens_preempted) - 56usize];
    [
        "Offset of field: quire_cache_stats::evictions",
    ][::core::mem::offset_of!(quire_cache_stats, evictions) - 64usize];
    [
        "Offset of field: quire_cache_stats::copies_on_write",
    ][::core::mem::offset_of!(quire_cache_stats, copies_on_write) - 72usize];
    [
        "Offset of field: quire_cache_stats::blocks_swapped_out",
    ][::core::mem::offset_of!(quire_cache_stats, blocks_swapped_out) - 80usize];
    [
        "Offset of field: quire_cache_stats::blocks_swapped_in",
    ][::core::mem::offset_of!(quire_cache_stats, blocks_swapped_in) - 88usize];
    [
        "Offset of field: quire_cache_stats::forks",
    ][::core::mem::offset_of!(quire_cache_stats, forks) - 96usize];
    [
        "Offset of field: quire_cache_stats::steps",
    ][::core::mem::offset_of!(quire_cache_stats, steps) - 104usize];
    [
        "Offset of field: quire_cache_stats::bytes_hashed",
    ][::core::mem::offset_of!(quire_cache_stats, bytes_hashed) - 112usize];
    [
        "Offset of field: quire_cache_stats::bytes_compared",
    ][::core::mem::offset_of!(quire_cache_stats, bytes_compared) - 120usize];
    [
        "Offset of field: quire_cache_stats::sequences",
    ][::core::mem::offset_of!(quire_cache_stats, sequences) - 128usize];
    [
        "Offset of field: quire_cache_stats::sequences_lost",
    ][::core::mem::offset_of!(quire_cache_stats, sequences_lost) - 136usize];
    [
        "Offset of field: quire_cache_stats::host_blocks_used",
    ][::core::mem::offset_of!(quire_cache_stats, host_blocks_used) - 144usize];
    [
        "Offset of field: quire_cache_stats::blocks_total",
    ][::core::mem::offset_of!(quire_cache_stats, blocks_total) - 152usize];
    [
        "Offset of field: quire_cache_stats::blocks_free",
    ][::core::mem::offset_of!(quire_cache_stats, blocks_free) - 160usize];
    [
        "Offset of field: quire_cache_stats::blocks_cached",
    ][::core::mem::offset_of!(quire_cache_stats, blocks_cached) - 168usize];
    [
        "Offset of field: quire_cache_stats::blocks_held",
    ][::core::mem::offset_of!(quire_cache_stats, blocks_held) - 176usize];
    [
        "Offset of field: quire_cache_stats::nodes",
    ][::core::mem::offset_of!(quire_cache_stats, nodes) - 184usize];
    [
        "Offset of field: quire_cache_stats::kv_cache_usage_perc",
    ][::core::mem::offset_of!(quire_cache_stats, kv_cache_usage_perc) - 192usize];
    [
        "Offset of field: quire_cache_stats::migrations",
    ][::core::mem::offset_of!(quire_cache_stats, migrations) - 200usize];
    [
        "Offset of field: quire_cache_stats::bytes_migrated",
    ][::core::mem::offset_of!(quire_cache_stats, bytes_migrated) - 208usize];
    [
        "Offset of field: quire_cache_stats::blocks_demoted",
    ][::core::mem::offset_of!(quire_cache_stats, blocks_demoted) - 216usize];
    [
        "Offset of field: quire_cache_stats::blocks_promoted",
    ][::core::mem::offset_of!(quire_cache_stats, blocks_promoted) - 224usize];
    [
        "Offset of field: quire_cache_stats::host_blocks_cached",
    ][::core::mem::offset_of!(quire_cache_stats, host_blocks_cached) - 232usize];
    [
        "Offset of field: quire_cache_stats::leases",
    ][::core::mem::offset_of!(quire_cache_stats, leases) - 240usize];
    [
        "Offset of field: quire_cache_stats::blocks_leased",
    ][::core::mem::offset_of!(quire_cache_stats, blocks_leased) - 248usize];
};
impl Default for quire_cache_stats {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_DUMP_TOKENS: _bindgen_ty_16 = 1;
pub type _bindgen_ty_16 = u32;
pub const QUIRE_NAMESPACE_EVENT_TOKENS: _bindgen_ty_17 = 1;
pub type _bindgen_ty_17 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_namespace_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub key: *const ::core::ffi::c_void,
    pub key_size_bytes: u32,
    pub quota_blocks: u32,
    pub key_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_namespace_desc",
    ][::core::mem::size_of::<quire_namespace_desc>() - 40usize];
    [
        "Alignment of quire_namespace_desc",
    ][::core::mem::align_of::<quire_namespace_desc>() - 8usize];
    [
        "Offset of field: quire_namespace_desc::struct_size",
    ][::core::mem::offset_of!(quire_namespace_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_namespace_desc::flags",
    ][::core::mem::offset_of!(quire_namespace_desc, flags) - 4usize];
    [
        "Offset of field: quire_namespace_desc::next",
    ][::core::mem::offset_of!(quire_namespace_desc, next) - 8usize];
    [
        "Offset of field: quire_namespace_desc::key",
    ][::core::mem::offset_of!(quire_namespace_desc, key) - 16usize];
    [
        "Offset of field: quire_namespace_desc::key_size_bytes",
    ][::core::mem::offset_of!(quire_namespace_desc, key_size_bytes) - 24usize];
    [
        "Offset of field: quire_namespace_desc::quota_blocks",
    ][::core::mem::offset_of!(quire_namespace_desc, quota_blocks) - 28usize];
    [
        "Offset of field: quire_namespace_desc::key_bytes",
    ][::core::mem::offset_of!(quire_namespace_desc, key_bytes) - 32usize];
};
impl Default for quire_namespace_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_namespace_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub sequences: u64,
    pub blocks_held: u64,
    pub quota_blocks: u64,
    pub prefix_cache_queries: u64,
    pub prefix_cache_hits: u64,
    pub key_bytes: u64,
    pub key_bytes_limit: u64,
    pub leases: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_namespace_info",
    ][::core::mem::size_of::<quire_namespace_info>() - 80usize];
    [
        "Alignment of quire_namespace_info",
    ][::core::mem::align_of::<quire_namespace_info>() - 8usize];
    [
        "Offset of field: quire_namespace_info::struct_size",
    ][::core::mem::offset_of!(quire_namespace_info, struct_size) - 0usize];
    [
        "Offset of field: quire_namespace_info::flags",
    ][::core::mem::offset_of!(quire_namespace_info, flags) - 4usize];
    [
        "Offset of field: quire_namespace_info::next",
    ][::core::mem::offset_of!(quire_namespace_info, next) - 8usize];
    [
        "Offset of field: quire_namespace_info::sequences",
    ][::core::mem::offset_of!(quire_namespace_info, sequences) - 16usize];
    [
        "Offset of field: quire_namespace_info::blocks_held",
    ][::core::mem::offset_of!(quire_namespace_info, blocks_held) - 24usize];
    [
        "Offset of field: quire_namespace_info::quota_blocks",
    ][::core::mem::offset_of!(quire_namespace_info, quota_blocks) - 32usize];
    [
        "Offset of field: quire_namespace_info::prefix_cache_queries",
    ][::core::mem::offset_of!(quire_namespace_info, prefix_cache_queries) - 40usize];
    [
        "Offset of field: quire_namespace_info::prefix_cache_hits",
    ][::core::mem::offset_of!(quire_namespace_info, prefix_cache_hits) - 48usize];
    [
        "Offset of field: quire_namespace_info::key_bytes",
    ][::core::mem::offset_of!(quire_namespace_info, key_bytes) - 56usize];
    [
        "Offset of field: quire_namespace_info::key_bytes_limit",
    ][::core::mem::offset_of!(quire_namespace_info, key_bytes_limit) - 64usize];
    [
        "Offset of field: quire_namespace_info::leases",
    ][::core::mem::offset_of!(quire_namespace_info, leases) - 72usize];
};
impl Default for quire_namespace_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct quire_store_label {
    pub key: [u8; 32usize],
    pub fingerprint: [u8; 32usize],
    pub name_space: [u8; 32usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_store_label"][::core::mem::size_of::<quire_store_label>() - 96usize];
    [
        "Alignment of quire_store_label",
    ][::core::mem::align_of::<quire_store_label>() - 1usize];
    [
        "Offset of field: quire_store_label::key",
    ][::core::mem::offset_of!(quire_store_label, key) - 0usize];
    [
        "Offset of field: quire_store_label::fingerprint",
    ][::core::mem::offset_of!(quire_store_label, fingerprint) - 32usize];
    [
        "Offset of field: quire_store_label::name_space",
    ][::core::mem::offset_of!(quire_store_label, name_space) - 64usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_store_option {
    pub name: *const ::core::ffi::c_char,
    pub value: *const ::core::ffi::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_store_option",
    ][::core::mem::size_of::<quire_store_option>() - 16usize];
    [
        "Alignment of quire_store_option",
    ][::core::mem::align_of::<quire_store_option>() - 8usize];
    [
        "Offset of field: quire_store_option::name",
    ][::core::mem::offset_of!(quire_store_option, name) - 0usize];
    [
        "Offset of field: quire_store_option::value",
    ][::core::mem::offset_of!(quire_store_option, value) - 8usize];
};
impl Default for quire_store_option {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_STORE_OPEN_EXISTING: _bindgen_ty_18 = 1;
pub const QUIRE_STORE_OPEN_READ_ONLY: _bindgen_ty_18 = 2;
pub type _bindgen_ty_18 = u32;
pub const QUIRE_STORE_INDEXED: _bindgen_ty_19 = 1;
pub const QUIRE_STORE_PERSISTENT: _bindgen_ty_19 = 2;
pub const QUIRE_STORE_REMOTE: _bindgen_ty_19 = 4;
pub const QUIRE_STORE_COMPACTS: _bindgen_ty_19 = 8;
pub type _bindgen_ty_19 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_store_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub max_value_bytes: u64,
    pub capacity_bytes: u64,
    pub max_requests: u32,
    pub reserved0: u32,
    pub place: [::core::ffi::c_char; 256usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_store_info"][::core::mem::size_of::<quire_store_info>() - 296usize];
    [
        "Alignment of quire_store_info",
    ][::core::mem::align_of::<quire_store_info>() - 8usize];
    [
        "Offset of field: quire_store_info::struct_size",
    ][::core::mem::offset_of!(quire_store_info, struct_size) - 0usize];
    [
        "Offset of field: quire_store_info::flags",
    ][::core::mem::offset_of!(quire_store_info, flags) - 4usize];
    [
        "Offset of field: quire_store_info::next",
    ][::core::mem::offset_of!(quire_store_info, next) - 8usize];
    [
        "Offset of field: quire_store_info::max_value_bytes",
    ][::core::mem::offset_of!(quire_store_info, max_value_bytes) - 16usize];
    [
        "Offset of field: quire_store_info::capacity_bytes",
    ][::core::mem::offset_of!(quire_store_info, capacity_bytes) - 24usize];
    [
        "Offset of field: quire_store_info::max_requests",
    ][::core::mem::offset_of!(quire_store_info, max_requests) - 32usize];
    [
        "Offset of field: quire_store_info::reserved0",
    ][::core::mem::offset_of!(quire_store_info, reserved0) - 36usize];
    [
        "Offset of field: quire_store_info::place",
    ][::core::mem::offset_of!(quire_store_info, place) - 40usize];
};
impl Default for quire_store_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_store_stats {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub records: u64,
    pub value_bytes: u64,
    pub used_bytes: u64,
    pub puts: u64,
    pub puts_known: u64,
    pub puts_refused: u64,
    pub hits: u64,
    pub misses: u64,
    pub foreign: u64,
    pub damaged: u64,
    pub failed_reads: u64,
    pub removed: u64,
    pub evicted: u64,
    pub written_bytes: u64,
    pub read_bytes: u64,
    pub recovered: u64,
    pub skipped_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_store_stats",
    ][::core::mem::size_of::<quire_store_stats>() - 152usize];
    [
        "Alignment of quire_store_stats",
    ][::core::mem::align_of::<quire_store_stats>() - 8usize];
    [
        "Offset of field: quire_store_stats::struct_size",
    ][::core::mem::offset_of!(quire_store_stats, struct_size) - 0usize];
    [
        "Offset of field: quire_store_stats::flags",
    ][::core::mem::offset_of!(quire_store_stats, flags) - 4usize];
    [
        "Offset of field: quire_store_stats::next",
    ][::core::mem::offset_of!(quire_store_stats, next) - 8usize];
    [
        "Offset of field: quire_store_stats::records",
    ][::core::mem::offset_of!(quire_store_stats, records) - 16usize];
    [
        "Offset of field: quire_store_stats::value_bytes",
    ][::core::mem::offset_of!(quire_store_stats, value_bytes) - 24usize];
    [
        "Offset of field: quire_store_stats::used_bytes",
    ][::core::mem::offset_of!(quire_store_stats, used_bytes) - 32usize];
    [
        "Offset of field: quire_store_stats::puts",
    ][::core::mem::offset_of!(quire_store_stats, puts) - 40usize];
    [
        "Offset of field: quire_store_stats::puts_known",
    ][::core::mem::offset_of!(quire_store_stats, puts_known) - 48usize];
    [
        "Offset of field: quire_store_stats::puts_refused",
    ][::core::mem::offset_of!(quire_store_stats, puts_refused) - 56usize];
    [
        "Offset of field: quire_store_stats::hits",
    ][::core::mem::offset_of!(quire_store_stats, hits) - 64usize];
    [
        "Offset of field: quire_store_stats::misses",
    ][::core::mem::offset_of!(quire_store_stats, misses) - 72usize];
    [
        "Offset of field: quire_store_stats::foreign",
    ][::core::mem::offset_of!(quire_store_stats, foreign) - 80usize];
    [
        "Offset of field: quire_store_stats::damaged",
    ][::core::mem::offset_of!(quire_store_stats, damaged) - 88usize];
    [
        "Offset of field: quire_store_stats::failed_reads",
    ][::core::mem::offset_of!(quire_store_stats, failed_reads) - 96usize];
    [
        "Offset of field: quire_store_stats::removed",
    ][::core::mem::offset_of!(quire_store_stats, removed) - 104usize];
    [
        "Offset of field: quire_store_stats::evicted",
    ][::core::mem::offset_of!(quire_store_stats, evicted) - 112usize];
    [
        "Offset of field: quire_store_stats::written_bytes",
    ][::core::mem::offset_of!(quire_store_stats, written_bytes) - 120usize];
    [
        "Offset of field: quire_store_stats::read_bytes",
    ][::core::mem::offset_of!(quire_store_stats, read_bytes) - 128usize];
    [
        "Offset of field: quire_store_stats::recovered",
    ][::core::mem::offset_of!(quire_store_stats, recovered) - 136usize];
    [
        "Offset of field: quire_store_stats::skipped_bytes",
    ][::core::mem::offset_of!(quire_store_stats, skipped_bytes) - 144usize];
};
impl Default for quire_store_stats {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_store_piece {
    pub address: *mut ::core::ffi::c_void,
    pub size_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_store_piece"][::core::mem::size_of::<quire_store_piece>() - 16usize];
    [
        "Alignment of quire_store_piece",
    ][::core::mem::align_of::<quire_store_piece>() - 8usize];
    [
        "Offset of field: quire_store_piece::address",
    ][::core::mem::offset_of!(quire_store_piece, address) - 0usize];
    [
        "Offset of field: quire_store_piece::size_bytes",
    ][::core::mem::offset_of!(quire_store_piece, size_bytes) - 8usize];
};
impl Default for quire_store_piece {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_STORE_PUT: _bindgen_ty_20 = 1;
pub const QUIRE_STORE_GET: _bindgen_ty_20 = 2;
pub const QUIRE_STORE_FIND: _bindgen_ty_20 = 3;
pub const QUIRE_STORE_REMOVE: _bindgen_ty_20 = 4;
pub const QUIRE_STORE_FLUSH: _bindgen_ty_20 = 5;
pub const QUIRE_STORE_COMPACT: _bindgen_ty_20 = 6;
pub type _bindgen_ty_20 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_store_request {
    pub kind: u32,
    pub flags: u32,
    pub cookie: u64,
    pub label: quire_store_label,
    pub pieces: *const quire_store_piece,
    pub piece_count: u32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_store_request",
    ][::core::mem::size_of::<quire_store_request>() - 128usize];
    [
        "Alignment of quire_store_request",
    ][::core::mem::align_of::<quire_store_request>() - 8usize];
    [
        "Offset of field: quire_store_request::kind",
    ][::core::mem::offset_of!(quire_store_request, kind) - 0usize];
    [
        "Offset of field: quire_store_request::flags",
    ][::core::mem::offset_of!(quire_store_request, flags) - 4usize];
    [
        "Offset of field: quire_store_request::cookie",
    ][::core::mem::offset_of!(quire_store_request, cookie) - 8usize];
    [
        "Offset of field: quire_store_request::label",
    ][::core::mem::offset_of!(quire_store_request, label) - 16usize];
    [
        "Offset of field: quire_store_request::pieces",
    ][::core::mem::offset_of!(quire_store_request, pieces) - 112usize];
    [
        "Offset of field: quire_store_request::piece_count",
    ][::core::mem::offset_of!(quire_store_request, piece_count) - 120usize];
    [
        "Offset of field: quire_store_request::reserved0",
    ][::core::mem::offset_of!(quire_store_request, reserved0) - 124usize];
};
impl Default for quire_store_request {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_STORE_DONE: _bindgen_ty_21 = 0;
pub const QUIRE_STORE_MISS: _bindgen_ty_21 = 1;
pub const QUIRE_STORE_FOREIGN: _bindgen_ty_21 = 2;
pub const QUIRE_STORE_DAMAGED: _bindgen_ty_21 = 3;
pub const QUIRE_STORE_SIZE: _bindgen_ty_21 = 4;
pub const QUIRE_STORE_FULL: _bindgen_ty_21 = 5;
pub const QUIRE_STORE_FAILED: _bindgen_ty_21 = 6;
pub const QUIRE_STORE_CANCELLED: _bindgen_ty_21 = 7;
pub const QUIRE_STORE_NOTICE_GONE: _bindgen_ty_21 = 16;
pub const QUIRE_STORE_NOTICE_LOST: _bindgen_ty_21 = 17;
pub type _bindgen_ty_21 = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct quire_store_answer {
    pub outcome: u32,
    pub kind: u32,
    pub cookie: u64,
    pub label: quire_store_label,
    pub size_bytes: u64,
    pub native_code: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_store_answer",
    ][::core::mem::size_of::<quire_store_answer>() - 128usize];
    [
        "Alignment of quire_store_answer",
    ][::core::mem::align_of::<quire_store_answer>() - 8usize];
    [
        "Offset of field: quire_store_answer::outcome",
    ][::core::mem::offset_of!(quire_store_answer, outcome) - 0usize];
    [
        "Offset of field: quire_store_answer::kind",
    ][::core::mem::offset_of!(quire_store_answer, kind) - 4usize];
    [
        "Offset of field: quire_store_answer::cookie",
    ][::core::mem::offset_of!(quire_store_answer, cookie) - 8usize];
    [
        "Offset of field: quire_store_answer::label",
    ][::core::mem::offset_of!(quire_store_answer, label) - 16usize];
    [
        "Offset of field: quire_store_answer::size_bytes",
    ][::core::mem::offset_of!(quire_store_answer, size_bytes) - 112usize];
    [
        "Offset of field: quire_store_answer::native_code",
    ][::core::mem::offset_of!(quire_store_answer, native_code) - 120usize];
};
pub const QUIRE_STORE_ABSENT: _bindgen_ty_22 = 0;
pub const QUIRE_STORE_PRESENT: _bindgen_ty_22 = 1;
pub const QUIRE_STORE_UNKNOWN: _bindgen_ty_22 = 2;
pub type _bindgen_ty_22 = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct quire_store_record {
    pub label: quire_store_label,
    pub value_bytes: u64,
    pub sequence: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_store_record",
    ][::core::mem::size_of::<quire_store_record>() - 112usize];
    [
        "Alignment of quire_store_record",
    ][::core::mem::align_of::<quire_store_record>() - 8usize];
    [
        "Offset of field: quire_store_record::label",
    ][::core::mem::offset_of!(quire_store_record, label) - 0usize];
    [
        "Offset of field: quire_store_record::value_bytes",
    ][::core::mem::offset_of!(quire_store_record, value_bytes) - 96usize];
    [
        "Offset of field: quire_store_record::sequence",
    ][::core::mem::offset_of!(quire_store_record, sequence) - 104usize];
};
#[repr(C)]
#[derive(Debug)]
pub struct quire_tier {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_tier_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub store: *const ::core::ffi::c_char,
    pub options: *const quire_store_option,
    pub option_count: u32,
    pub option_stride: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_tier_desc"][::core::mem::size_of::<quire_tier_desc>() - 40usize];
    [
        "Alignment of quire_tier_desc",
    ][::core::mem::align_of::<quire_tier_desc>() - 8usize];
    [
        "Offset of field: quire_tier_desc::struct_size",
    ][::core::mem::offset_of!(quire_tier_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_tier_desc::flags",
    ][::core::mem::offset_of!(quire_tier_desc, flags) - 4usize];
    [
        "Offset of field: quire_tier_desc::next",
    ][::core::mem::offset_of!(quire_tier_desc, next) - 8usize];
    [
        "Offset of field: quire_tier_desc::store",
    ][::core::mem::offset_of!(quire_tier_desc, store) - 16usize];
    [
        "Offset of field: quire_tier_desc::options",
    ][::core::mem::offset_of!(quire_tier_desc, options) - 24usize];
    [
        "Offset of field: quire_tier_desc::option_count",
    ][::core::mem::offset_of!(quire_tier_desc, option_count) - 32usize];
    [
        "Offset of field: quire_tier_desc::option_stride",
    ][::core::mem::offset_of!(quire_tier_desc, option_stride) - 36usize];
};
impl Default for quire_tier_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_TIER_WRITE_NONE: _bindgen_ty_23 = 0;
pub const QUIRE_TIER_WRITE_THROUGH: _bindgen_ty_23 = 1;
pub const QUIRE_TIER_WRITE_SELECTIVE: _bindgen_ty_23 = 2;
pub const QUIRE_TIER_WRITE_BACK: _bindgen_ty_23 = 3;
pub type _bindgen_ty_23 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_cache_tier_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub fingerprint: [u8; 32usize],
    pub write: u32,
    pub min_load_tokens: u32,
    pub load_timeout_ns: u64,
    pub load_expiry_ns: u64,
    pub max_load_bytes: u64,
    pub max_write_bytes: u64,
    pub max_told_blocks: u64,
    pub followers: u32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_cache_tier_desc",
    ][::core::mem::size_of::<quire_cache_tier_desc>() - 104usize];
    [
        "Alignment of quire_cache_tier_desc",
    ][::core::mem::align_of::<quire_cache_tier_desc>() - 8usize];
    [
        "Offset of field: quire_cache_tier_desc::struct_size",
    ][::core::mem::offset_of!(quire_cache_tier_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_cache_tier_desc::flags",
    ][::core::mem::offset_of!(quire_cache_tier_desc, flags) - 4usize];
    [
        "Offset of field: quire_cache_tier_desc::next",
    ][::core::mem::offset_of!(quire_cache_tier_desc, next) - 8usize];
    [
        "Offset of field: quire_cache_tier_desc::fingerprint",
    ][::core::mem::offset_of!(quire_cache_tier_desc, fingerprint) - 16usize];
    [
        "Offset of field: quire_cache_tier_desc::write",
    ][::core::mem::offset_of!(quire_cache_tier_desc, write) - 48usize];
    [
        "Offset of field: quire_cache_tier_desc::min_load_tokens",
    ][::core::mem::offset_of!(quire_cache_tier_desc, min_load_tokens) - 52usize];
    [
        "Offset of field: quire_cache_tier_desc::load_timeout_ns",
    ][::core::mem::offset_of!(quire_cache_tier_desc, load_timeout_ns) - 56usize];
    [
        "Offset of field: quire_cache_tier_desc::load_expiry_ns",
    ][::core::mem::offset_of!(quire_cache_tier_desc, load_expiry_ns) - 64usize];
    [
        "Offset of field: quire_cache_tier_desc::max_load_bytes",
    ][::core::mem::offset_of!(quire_cache_tier_desc, max_load_bytes) - 72usize];
    [
        "Offset of field: quire_cache_tier_desc::max_write_bytes",
    ][::core::mem::offset_of!(quire_cache_tier_desc, max_write_bytes) - 80usize];
    [
        "Offset of field: quire_cache_tier_desc::max_told_blocks",
    ][::core::mem::offset_of!(quire_cache_tier_desc, max_told_blocks) - 88usize];
    [
        "Offset of field: quire_cache_tier_desc::followers",
    ][::core::mem::offset_of!(quire_cache_tier_desc, followers) - 96usize];
    [
        "Offset of field: quire_cache_tier_desc::reserved0",
    ][::core::mem::offset_of!(quire_cache_tier_desc, reserved0) - 100usize];
};
impl Default for quire_cache_tier_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_cache_tier_progress {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub loads_running: u32,
    pub loads_ready: u32,
    pub loads_ended: u64,
    pub blocks_queued: u64,
    pub descriptor: i32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_cache_tier_progress",
    ][::core::mem::size_of::<quire_cache_tier_progress>() - 48usize];
    [
        "Alignment of quire_cache_tier_progress",
    ][::core::mem::align_of::<quire_cache_tier_progress>() - 8usize];
    [
        "Offset of field: quire_cache_tier_progress::struct_size",
    ][::core::mem::offset_of!(quire_cache_tier_progress, struct_size) - 0usize];
    [
        "Offset of field: quire_cache_tier_progress::flags",
    ][::core::mem::offset_of!(quire_cache_tier_progress, flags) - 4usize];
    [
        "Offset of field: quire_cache_tier_progress::next",
    ][::core::mem::offset_of!(quire_cache_tier_progress, next) - 8usize];
    [
        "Offset of field: quire_cache_tier_progress::loads_running",
    ][::core::mem::offset_of!(quire_cache_tier_progress, loads_running) - 16usize];
    [
        "Offset of field: quire_cache_tier_progress::loads_ready",
    ][::core::mem::offset_of!(quire_cache_tier_progress, loads_ready) - 20usize];
    [
        "Offset of field: quire_cache_tier_progress::loads_ended",
    ][::core::mem::offset_of!(quire_cache_tier_progress, loads_ended) - 24usize];
    [
        "Offset of field: quire_cache_tier_progress::blocks_queued",
    ][::core::mem::offset_of!(quire_cache_tier_progress, blocks_queued) - 32usize];
    [
        "Offset of field: quire_cache_tier_progress::descriptor",
    ][::core::mem::offset_of!(quire_cache_tier_progress, descriptor) - 40usize];
    [
        "Offset of field: quire_cache_tier_progress::reserved0",
    ][::core::mem::offset_of!(quire_cache_tier_progress, reserved0) - 44usize];
};
impl Default for quire_cache_tier_progress {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_cache_tier_stats {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub loads_begun: u64,
    pub loads_ready: u64,
    pub loads_used: u64,
    pub loads_missed: u64,
    pub loads_failed: u64,
    pub loads_late: u64,
    pub loads_expired: u64,
    pub loads_cancelled: u64,
    pub loads_short: u64,
    pub tokens_loaded: u64,
    pub bytes_loaded: u64,
    pub values_damaged: u64,
    pub values_foreign: u64,
    pub blocks_written: u64,
    pub bytes_written: u64,
    pub blocks_known: u64,
    pub blocks_refused: u64,
    pub blocks_dropped: u64,
    pub blocks_evicted: u64,
    pub blocks_lost: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_cache_tier_stats",
    ][::core::mem::size_of::<quire_cache_tier_stats>() - 176usize];
    [
        "Alignment of quire_cache_tier_stats",
    ][::core::mem::align_of::<quire_cache_tier_stats>() - 8usize];
    [
        "Offset of field: quire_cache_tier_stats::struct_size",
    ][::core::mem::offset_of!(quire_cache_tier_stats, struct_size) - 0usize];
    [
        "Offset of field: quire_cache_tier_stats::flags",
    ][::core::mem::offset_of!(quire_cache_tier_stats, flags) - 4usize];
    [
        "Offset of field: quire_cache_tier_stats::next",
    ][::core::mem::offset_of!(quire_cache_tier_stats, next) - 8usize];
    [
        "Offset of field: quire_cache_tier_stats::loads_begun",
    ][::core::mem::offset_of!(quire_cache_tier_stats, loads_begun) - 16usize];
    [
        "Offset of field: quire_cache_tier_stats::loads_ready",
    ][::core::mem::offset_of!(quire_cache_tier_stats, loads_ready) - 24usize];
    [
        "Offset of field: quire_cache_tier_stats::loads_used",
    ][::core::mem::offset_of!(quire_cache_tier_stats, loads_used) - 32usize];
    [
        "Offset of field: quire_cache_tier_stats::loads_missed",
    ][::core::mem::offset_of!(quire_cache_tier_stats, loads_missed) - 40usize];
    [
        "Offset of field: quire_cache_tier_stats::loads_failed",
    ][::core::mem::offset_of!(quire_cache_tier_stats, loads_failed) - 48usize];
    [
        "Offset of field: quire_cache_tier_stats::loads_late",
    ][::core::mem::offset_of!(quire_cache_tier_stats, loads_late) - 56usize];
    [
        "Offset of field: quire_cache_tier_stats::loads_expired",
    ][::core::mem::offset_of!(quire_cache_tier_stats, loads_expired) - 64usize];
    [
        "Offset of field: quire_cache_tier_stats::loads_cancelled",
    ][::core::mem::offset_of!(quire_cache_tier_stats, loads_cancelled) - 72usize];
    [
        "Offset of field: quire_cache_tier_stats::loads_short",
    ][::core::mem::offset_of!(quire_cache_tier_stats, loads_short) - 80usize];
    [
        "Offset of field: quire_cache_tier_stats::tokens_loaded",
    ][::core::mem::offset_of!(quire_cache_tier_stats, tokens_loaded) - 88usize];
    [
        "Offset of field: quire_cache_tier_stats::bytes_loaded",
    ][::core::mem::offset_of!(quire_cache_tier_stats, bytes_loaded) - 96usize];
    [
        "Offset of field: quire_cache_tier_stats::values_damaged",
    ][::core::mem::offset_of!(quire_cache_tier_stats, values_damaged) - 104usize];
    [
        "Offset of field: quire_cache_tier_stats::values_foreign",
    ][::core::mem::offset_of!(quire_cache_tier_stats, values_foreign) - 112usize];
    [
        "Offset of field: quire_cache_tier_stats::blocks_written",
    ][::core::mem::offset_of!(quire_cache_tier_stats, blocks_written) - 120usize];
    [
        "Offset of field: quire_cache_tier_stats::bytes_written",
    ][::core::mem::offset_of!(quire_cache_tier_stats, bytes_written) - 128usize];
    [
        "Offset of field: quire_cache_tier_stats::blocks_known",
    ][::core::mem::offset_of!(quire_cache_tier_stats, blocks_known) - 136usize];
    [
        "Offset of field: quire_cache_tier_stats::blocks_refused",
    ][::core::mem::offset_of!(quire_cache_tier_stats, blocks_refused) - 144usize];
    [
        "Offset of field: quire_cache_tier_stats::blocks_dropped",
    ][::core::mem::offset_of!(quire_cache_tier_stats, blocks_dropped) - 152usize];
    [
        "Offset of field: quire_cache_tier_stats::blocks_evicted",
    ][::core::mem::offset_of!(quire_cache_tier_stats, blocks_evicted) - 160usize];
    [
        "Offset of field: quire_cache_tier_stats::blocks_lost",
    ][::core::mem::offset_of!(quire_cache_tier_stats, blocks_lost) - 168usize];
};
impl Default for quire_cache_tier_stats {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_calibration_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub version: u32,
    pub layer_count: u32,
    pub max_kv_heads: u32,
    pub unwritten: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_calibration_info",
    ][::core::mem::size_of::<quire_calibration_info>() - 32usize];
    [
        "Alignment of quire_calibration_info",
    ][::core::mem::align_of::<quire_calibration_info>() - 8usize];
    [
        "Offset of field: quire_calibration_info::struct_size",
    ][::core::mem::offset_of!(quire_calibration_info, struct_size) - 0usize];
    [
        "Offset of field: quire_calibration_info::flags",
    ][::core::mem::offset_of!(quire_calibration_info, flags) - 4usize];
    [
        "Offset of field: quire_calibration_info::next",
    ][::core::mem::offset_of!(quire_calibration_info, next) - 8usize];
    [
        "Offset of field: quire_calibration_info::version",
    ][::core::mem::offset_of!(quire_calibration_info, version) - 16usize];
    [
        "Offset of field: quire_calibration_info::layer_count",
    ][::core::mem::offset_of!(quire_calibration_info, layer_count) - 20usize];
    [
        "Offset of field: quire_calibration_info::max_kv_heads",
    ][::core::mem::offset_of!(quire_calibration_info, max_kv_heads) - 24usize];
    [
        "Offset of field: quire_calibration_info::unwritten",
    ][::core::mem::offset_of!(quire_calibration_info, unwritten) - 28usize];
};
impl Default for quire_calibration_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_calibration_layer {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub kv_heads: u32,
    pub k_head_dim: u32,
    pub v_head_dim: u32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_calibration_layer",
    ][::core::mem::size_of::<quire_calibration_layer>() - 32usize];
    [
        "Alignment of quire_calibration_layer",
    ][::core::mem::align_of::<quire_calibration_layer>() - 8usize];
    [
        "Offset of field: quire_calibration_layer::struct_size",
    ][::core::mem::offset_of!(quire_calibration_layer, struct_size) - 0usize];
    [
        "Offset of field: quire_calibration_layer::flags",
    ][::core::mem::offset_of!(quire_calibration_layer, flags) - 4usize];
    [
        "Offset of field: quire_calibration_layer::next",
    ][::core::mem::offset_of!(quire_calibration_layer, next) - 8usize];
    [
        "Offset of field: quire_calibration_layer::kv_heads",
    ][::core::mem::offset_of!(quire_calibration_layer, kv_heads) - 16usize];
    [
        "Offset of field: quire_calibration_layer::k_head_dim",
    ][::core::mem::offset_of!(quire_calibration_layer, k_head_dim) - 20usize];
    [
        "Offset of field: quire_calibration_layer::v_head_dim",
    ][::core::mem::offset_of!(quire_calibration_layer, v_head_dim) - 24usize];
    [
        "Offset of field: quire_calibration_layer::reserved0",
    ][::core::mem::offset_of!(quire_calibration_layer, reserved0) - 28usize];
};
impl Default for quire_calibration_layer {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_LOG_ERROR: _bindgen_ty_24 = 1;
pub const QUIRE_LOG_WARNING: _bindgen_ty_24 = 2;
pub const QUIRE_LOG_INFO: _bindgen_ty_24 = 3;
pub type _bindgen_ty_24 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_instance_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub allocate: ::core::option::Option<
        unsafe extern "C" fn(
            user: *mut ::core::ffi::c_void,
            size_bytes: u64,
            alignment: u64,
        ) -> *mut ::core::ffi::c_void,
    >,
    pub release: ::core::option::Option<
        unsafe extern "C" fn(
            user: *mut ::core::ffi::c_void,
            pointer: *mut ::core::ffi::c_void,
            size_bytes: u64,
            alignment: u64,
        ),
    >,
    pub allocator_user: *mut ::core::ffi::c_void,
    pub log: ::core::option::Option<
        unsafe extern "C" fn(
            user: *mut ::core::ffi::c_void,
            level: i32,
            component: *const ::core::ffi::c_char,
            message: *const ::core::ffi::c_char,
        ),
    >,
    pub log_user: *mut ::core::ffi::c_void,
    pub plugin_path: *const ::core::ffi::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_instance_desc",
    ][::core::mem::size_of::<quire_instance_desc>() - 64usize];
    [
        "Alignment of quire_instance_desc",
    ][::core::mem::align_of::<quire_instance_desc>() - 8usize];
    [
        "Offset of field: quire_instance_desc::struct_size",
    ][::core::mem::offset_of!(quire_instance_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_instance_desc::flags",
    ][::core::mem::offset_of!(quire_instance_desc, flags) - 4usize];
    [
        "Offset of field: quire_instance_desc::next",
    ][::core::mem::offset_of!(quire_instance_desc, next) - 8usize];
    [
        "Offset of field: quire_instance_desc::allocate",
    ][::core::mem::offset_of!(quire_instance_desc, allocate) - 16usize];
    [
        "Offset of field: quire_instance_desc::release",
    ][::core::mem::offset_of!(quire_instance_desc, release) - 24usize];
    [
        "Offset of field: quire_instance_desc::allocator_user",
    ][::core::mem::offset_of!(quire_instance_desc, allocator_user) - 32usize];
    [
        "Offset of field: quire_instance_desc::log",
    ][::core::mem::offset_of!(quire_instance_desc, log) - 40usize];
    [
        "Offset of field: quire_instance_desc::log_user",
    ][::core::mem::offset_of!(quire_instance_desc, log_user) - 48usize];
    [
        "Offset of field: quire_instance_desc::plugin_path",
    ][::core::mem::offset_of!(quire_instance_desc, plugin_path) - 56usize];
};
impl Default for quire_instance_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_backend_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub status: quire_status,
    pub device_count: u32,
    pub abi_major: u32,
    pub abi_minor: u32,
    pub name: [::core::ffi::c_char; 32usize],
    pub version: [::core::ffi::c_char; 32usize],
    pub path: [::core::ffi::c_char; 512usize],
    pub message: [::core::ffi::c_char; 480usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_backend_info",
    ][::core::mem::size_of::<quire_backend_info>() - 1088usize];
    [
        "Alignment of quire_backend_info",
    ][::core::mem::align_of::<quire_backend_info>() - 8usize];
    [
        "Offset of field: quire_backend_info::struct_size",
    ][::core::mem::offset_of!(quire_backend_info, struct_size) - 0usize];
    [
        "Offset of field: quire_backend_info::flags",
    ][::core::mem::offset_of!(quire_backend_info, flags) - 4usize];
    [
        "Offset of field: quire_backend_info::next",
    ][::core::mem::offset_of!(quire_backend_info, next) - 8usize];
    [
        "Offset of field: quire_backend_info::status",
    ][::core::mem::offset_of!(quire_backend_info, status) - 16usize];
    [
        "Offset of field: quire_backend_info::device_count",
    ][::core::mem::offset_of!(quire_backend_info, device_count) - 20usize];
    [
        "Offset of field: quire_backend_info::abi_major",
    ][::core::mem::offset_of!(quire_backend_info, abi_major) - 24usize];
    [
        "Offset of field: quire_backend_info::abi_minor",
    ][::core::mem::offset_of!(quire_backend_info, abi_minor) - 28usize];
    [
        "Offset of field: quire_backend_info::name",
    ][::core::mem::offset_of!(quire_backend_info, name) - 32usize];
    [
        "Offset of field: quire_backend_info::version",
    ][::core::mem::offset_of!(quire_backend_info, version) - 64usize];
    [
        "Offset of field: quire_backend_info::path",
    ][::core::mem::offset_of!(quire_backend_info, path) - 96usize];
    [
        "Offset of field: quire_backend_info::message",
    ][::core::mem::offset_of!(quire_backend_info, message) - 608usize];
};
impl Default for quire_backend_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_DEVICE_PIN_THREADS: _bindgen_ty_25 = 1;
pub const QUIRE_DEVICE_FAST_16BIT: _bindgen_ty_25 = 2;
pub const QUIRE_DEVICE_INLINE: _bindgen_ty_25 = 4;
pub type _bindgen_ty_25 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_device_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub backend: *const ::core::ffi::c_char,
    pub index: u32,
    pub threads: u32,
    pub run_tasks: quire_run_tasks,
    pub run_tasks_user: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_device_desc"][::core::mem::size_of::<quire_device_desc>() - 48usize];
    [
        "Alignment of quire_device_desc",
    ][::core::mem::align_of::<quire_device_desc>() - 8usize];
    [
        "Offset of field: quire_device_desc::struct_size",
    ][::core::mem::offset_of!(quire_device_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_device_desc::flags",
    ][::core::mem::offset_of!(quire_device_desc, flags) - 4usize];
    [
        "Offset of field: quire_device_desc::next",
    ][::core::mem::offset_of!(quire_device_desc, next) - 8usize];
    [
        "Offset of field: quire_device_desc::backend",
    ][::core::mem::offset_of!(quire_device_desc, backend) - 16usize];
    [
        "Offset of field: quire_device_desc::index",
    ][::core::mem::offset_of!(quire_device_desc, index) - 24usize];
    [
        "Offset of field: quire_device_desc::threads",
    ][::core::mem::offset_of!(quire_device_desc, threads) - 28usize];
    [
        "Offset of field: quire_device_desc::run_tasks",
    ][::core::mem::offset_of!(quire_device_desc, run_tasks) - 32usize];
    [
        "Offset of field: quire_device_desc::run_tasks_user",
    ][::core::mem::offset_of!(quire_device_desc, run_tasks_user) - 40usize];
};
impl Default for quire_device_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_device_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub memory_total_bytes: u64,
    pub memory_free_bytes: u64,
    pub copy_alignment: u32,
    pub host_visible: u32,
    pub name: [::core::ffi::c_char; 64usize],
    pub backend: [::core::ffi::c_char; 32usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_device_info",
    ][::core::mem::size_of::<quire_device_info>() - 136usize];
    [
        "Alignment of quire_device_info",
    ][::core::mem::align_of::<quire_device_info>() - 8usize];
    [
        "Offset of field: quire_device_info::struct_size",
    ][::core::mem::offset_of!(quire_device_info, struct_size) - 0usize];
    [
        "Offset of field: quire_device_info::flags",
    ][::core::mem::offset_of!(quire_device_info, flags) - 4usize];
    [
        "Offset of field: quire_device_info::next",
    ][::core::mem::offset_of!(quire_device_info, next) - 8usize];
    [
        "Offset of field: quire_device_info::memory_total_bytes",
    ][::core::mem::offset_of!(quire_device_info, memory_total_bytes) - 16usize];
    [
        "Offset of field: quire_device_info::memory_free_bytes",
    ][::core::mem::offset_of!(quire_device_info, memory_free_bytes) - 24usize];
    [
        "Offset of field: quire_device_info::copy_alignment",
    ][::core::mem::offset_of!(quire_device_info, copy_alignment) - 32usize];
    [
        "Offset of field: quire_device_info::host_visible",
    ][::core::mem::offset_of!(quire_device_info, host_visible) - 36usize];
    [
        "Offset of field: quire_device_info::name",
    ][::core::mem::offset_of!(quire_device_info, name) - 40usize];
    [
        "Offset of field: quire_device_info::backend",
    ][::core::mem::offset_of!(quire_device_info, backend) - 104usize];
};
impl Default for quire_device_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_MEMORY_DEVICE: _bindgen_ty_26 = 0;
pub const QUIRE_MEMORY_HOST: _bindgen_ty_26 = 1;
pub type _bindgen_ty_26 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_memory_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub size_bytes: u64,
    pub kind: u32,
    pub reserved0: u32,
    pub host_pointer: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_memory_desc"][::core::mem::size_of::<quire_memory_desc>() - 40usize];
    [
        "Alignment of quire_memory_desc",
    ][::core::mem::align_of::<quire_memory_desc>() - 8usize];
    [
        "Offset of field: quire_memory_desc::struct_size",
    ][::core::mem::offset_of!(quire_memory_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_memory_desc::flags",
    ][::core::mem::offset_of!(quire_memory_desc, flags) - 4usize];
    [
        "Offset of field: quire_memory_desc::next",
    ][::core::mem::offset_of!(quire_memory_desc, next) - 8usize];
    [
        "Offset of field: quire_memory_desc::size_bytes",
    ][::core::mem::offset_of!(quire_memory_desc, size_bytes) - 16usize];
    [
        "Offset of field: quire_memory_desc::kind",
    ][::core::mem::offset_of!(quire_memory_desc, kind) - 24usize];
    [
        "Offset of field: quire_memory_desc::reserved0",
    ][::core::mem::offset_of!(quire_memory_desc, reserved0) - 28usize];
    [
        "Offset of field: quire_memory_desc::host_pointer",
    ][::core::mem::offset_of!(quire_memory_desc, host_pointer) - 32usize];
};
impl Default for quire_memory_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_memory_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub address: u64,
    pub host_pointer: *mut ::core::ffi::c_void,
    pub size_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_memory_info"][::core::mem::size_of::<quire_memory_info>() - 40usize];
    [
        "Alignment of quire_memory_info",
    ][::core::mem::align_of::<quire_memory_info>() - 8usize];
    [
        "Offset of field: quire_memory_info::struct_size",
    ][::core::mem::offset_of!(quire_memory_info, struct_size) - 0usize];
    [
        "Offset of field: quire_memory_info::flags",
    ][::core::mem::offset_of!(quire_memory_info, flags) - 4usize];
    [
        "Offset of field: quire_memory_info::next",
    ][::core::mem::offset_of!(quire_memory_info, next) - 8usize];
    [
        "Offset of field: quire_memory_info::address",
    ][::core::mem::offset_of!(quire_memory_info, address) - 16usize];
    [
        "Offset of field: quire_memory_info::host_pointer",
    ][::core::mem::offset_of!(quire_memory_info, host_pointer) - 24usize];
    [
        "Offset of field: quire_memory_info::size_bytes",
    ][::core::mem::offset_of!(quire_memory_info, size_bytes) - 32usize];
};
impl Default for quire_memory_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_EVENT_STORED: _bindgen_ty_27 = 1;
pub const QUIRE_EVENT_REMOVED: _bindgen_ty_27 = 2;
pub const QUIRE_EVENT_CLEARED: _bindgen_ty_27 = 3;
pub type _bindgen_ty_27 = u32;
pub const QUIRE_EVENT_HAS_TOKENS: _bindgen_ty_28 = 1;
pub const QUIRE_EVENT_KEYED: _bindgen_ty_28 = 2;
pub type _bindgen_ty_28 = u32;
pub const QUIRE_LEVEL_DEVICE: _bindgen_ty_29 = 0;
pub const QUIRE_LEVEL_HOST: _bindgen_ty_29 = 1;
pub const QUIRE_LEVEL_STORE: _bindgen_ty_29 = 2;
pub const QUIRE_LEVEL_REMOTE: _bindgen_ty_29 = 3;
pub type _bindgen_ty_29 = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct quire_cache_event {
    pub kind: u32,
    pub flags: u32,
    pub block: u64,
    pub parent: u64,
    pub ns: quire_namespace,
    pub group: u32,
    pub level: u32,
    pub position: u32,
    pub token_count: u32,
    pub token_offset: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_cache_event"][::core::mem::size_of::<quire_cache_event>() - 56usize];
    [
        "Alignment of quire_cache_event",
    ][::core::mem::align_of::<quire_cache_event>() - 8usize];
    [
        "Offset of field: quire_cache_event::kind",
    ][::core::mem::offset_of!(quire_cache_event, kind) - 0usize];
    [
        "Offset of field: quire_cache_event::flags",
    ][::core::mem::offset_of!(quire_cache_event, flags) - 4usize];
    [
        "Offset of field: quire_cache_event::block",
    ][::core::mem::offset_of!(quire_cache_event, block) - 8usize];
    [
        "Offset of field: quire_cache_event::parent",
    ][::core::mem::offset_of!(quire_cache_event, parent) - 16usize];
    [
        "Offset of field: quire_cache_event::ns",
    ][::core::mem::offset_of!(quire_cache_event, ns) - 24usize];
    [
        "Offset of field: quire_cache_event::group",
    ][::core::mem::offset_of!(quire_cache_event, group) - 32usize];
    [
        "Offset of field: quire_cache_event::level",
    ][::core::mem::offset_of!(quire_cache_event, level) - 36usize];
    [
        "Offset of field: quire_cache_event::position",
    ][::core::mem::offset_of!(quire_cache_event, position) - 40usize];
    [
        "Offset of field: quire_cache_event::token_count",
    ][::core::mem::offset_of!(quire_cache_event, token_count) - 44usize];
    [
        "Offset of field: quire_cache_event::token_offset",
    ][::core::mem::offset_of!(quire_cache_event, token_offset) - 48usize];
    [
        "Offset of field: quire_cache_event::reserved",
    ][::core::mem::offset_of!(quire_cache_event, reserved) - 52usize];
};
pub const QUIRE_EVENTS_RESTART: _bindgen_ty_30 = 1;
pub type _bindgen_ty_30 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_events_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub event_count: u32,
    pub token_count: u32,
    pub has_more: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_events_info"][::core::mem::size_of::<quire_events_info>() - 32usize];
    [
        "Alignment of quire_events_info",
    ][::core::mem::align_of::<quire_events_info>() - 8usize];
    [
        "Offset of field: quire_events_info::struct_size",
    ][::core::mem::offset_of!(quire_events_info, struct_size) - 0usize];
    [
        "Offset of field: quire_events_info::flags",
    ][::core::mem::offset_of!(quire_events_info, flags) - 4usize];
    [
        "Offset of field: quire_events_info::next",
    ][::core::mem::offset_of!(quire_events_info, next) - 8usize];
    [
        "Offset of field: quire_events_info::event_count",
    ][::core::mem::offset_of!(quire_events_info, event_count) - 16usize];
    [
        "Offset of field: quire_events_info::token_count",
    ][::core::mem::offset_of!(quire_events_info, token_count) - 20usize];
    [
        "Offset of field: quire_events_info::has_more",
    ][::core::mem::offset_of!(quire_events_info, has_more) - 24usize];
    [
        "Offset of field: quire_events_info::reserved",
    ][::core::mem::offset_of!(quire_events_info, reserved) - 28usize];
};
impl Default for quire_events_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_KEY_ADAPTER: _bindgen_ty_31 = 1;
pub const QUIRE_KEY_SALT: _bindgen_ty_31 = 2;
pub const QUIRE_KEY_MEDIA: _bindgen_ty_31 = 3;
pub const QUIRE_KEY_OTHER: _bindgen_ty_31 = 4;
pub type _bindgen_ty_31 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_key {
    pub type_: u32,
    pub size_bytes: u32,
    pub bytes: *const ::core::ffi::c_void,
    pub begin: u32,
    pub end: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_key"][::core::mem::size_of::<quire_key>() - 24usize];
    ["Alignment of quire_key"][::core::mem::align_of::<quire_key>() - 8usize];
    [
        "Offset of field: quire_key::type_",
    ][::core::mem::offset_of!(quire_key, type_) - 0usize];
    [
        "Offset of field: quire_key::size_bytes",
    ][::core::mem::offset_of!(quire_key, size_bytes) - 4usize];
    [
        "Offset of field: quire_key::bytes",
    ][::core::mem::offset_of!(quire_key, bytes) - 8usize];
    [
        "Offset of field: quire_key::begin",
    ][::core::mem::offset_of!(quire_key, begin) - 16usize];
    [
        "Offset of field: quire_key::end",
    ][::core::mem::offset_of!(quire_key, end) - 20usize];
};
impl Default for quire_key {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_seq_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub ns: quire_namespace,
    pub keys: *const quire_key,
    pub key_count: u32,
    pub key_stride: u32,
    pub priority: i32,
    pub cross_tokens: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_seq_desc"][::core::mem::size_of::<quire_seq_desc>() - 48usize];
    ["Alignment of quire_seq_desc"][::core::mem::align_of::<quire_seq_desc>() - 8usize];
    [
        "Offset of field: quire_seq_desc::struct_size",
    ][::core::mem::offset_of!(quire_seq_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_seq_desc::flags",
    ][::core::mem::offset_of!(quire_seq_desc, flags) - 4usize];
    [
        "Offset of field: quire_seq_desc::next",
    ][::core::mem::offset_of!(quire_seq_desc, next) - 8usize];
    [
        "Offset of field: quire_seq_desc::ns",
    ][::core::mem::offset_of!(quire_seq_desc, ns) - 16usize];
    [
        "Offset of field: quire_seq_desc::keys",
    ][::core::mem::offset_of!(quire_seq_desc, keys) - 24usize];
    [
        "Offset of field: quire_seq_desc::key_count",
    ][::core::mem::offset_of!(quire_seq_desc, key_count) - 32usize];
    [
        "Offset of field: quire_seq_desc::key_stride",
    ][::core::mem::offset_of!(quire_seq_desc, key_stride) - 36usize];
    [
        "Offset of field: quire_seq_desc::priority",
    ][::core::mem::offset_of!(quire_seq_desc, priority) - 40usize];
    [
        "Offset of field: quire_seq_desc::cross_tokens",
    ][::core::mem::offset_of!(quire_seq_desc, cross_tokens) - 44usize];
};
impl Default for quire_seq_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_SEQ_SWAPPED: _bindgen_ty_32 = 1;
pub const QUIRE_SEQ_LOST: _bindgen_ty_32 = 2;
pub const QUIRE_SEQ_IN_STEP: _bindgen_ty_32 = 4;
pub const QUIRE_SEQ_PREEMPTED: _bindgen_ty_32 = 8;
pub const QUIRE_SEQ_UNPUBLISHED: _bindgen_ty_32 = 16;
pub type _bindgen_ty_32 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_seq_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub known_tokens: u32,
    pub computed_tokens: u32,
    pub draft_tokens: u32,
    pub lookahead_tokens: u32,
    pub blocks_held: u32,
    pub preemptions: u32,
    pub priority: i32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_seq_info"][::core::mem::size_of::<quire_seq_info>() - 48usize];
    ["Alignment of quire_seq_info"][::core::mem::align_of::<quire_seq_info>() - 8usize];
    [
        "Offset of field: quire_seq_info::struct_size",
    ][::core::mem::offset_of!(quire_seq_info, struct_size) - 0usize];
    [
        "Offset of field: quire_seq_info::flags",
    ][::core::mem::offset_of!(quire_seq_info, flags) - 4usize];
    [
        "Offset of field: quire_seq_info::next",
    ][::core::mem::offset_of!(quire_seq_info, next) - 8usize];
    [
        "Offset of field: quire_seq_info::known_tokens",
    ][::core::mem::offset_of!(quire_seq_info, known_tokens) - 16usize];
    [
        "Offset of field: quire_seq_info::computed_tokens",
    ][::core::mem::offset_of!(quire_seq_info, computed_tokens) - 20usize];
    [
        "Offset of field: quire_seq_info::draft_tokens",
    ][::core::mem::offset_of!(quire_seq_info, draft_tokens) - 24usize];
    [
        "Offset of field: quire_seq_info::lookahead_tokens",
    ][::core::mem::offset_of!(quire_seq_info, lookahead_tokens) - 28usize];
    [
        "Offset of field: quire_seq_info::blocks_held",
    ][::core::mem::offset_of!(quire_seq_info, blocks_held) - 32usize];
    [
        "Offset of field: quire_seq_info::preemptions",
    ][::core::mem::offset_of!(quire_seq_info, preemptions) - 36usize];
    [
        "Offset of field: quire_seq_info::priority",
    ][::core::mem::offset_of!(quire_seq_info, priority) - 40usize];
    [
        "Offset of field: quire_seq_info::reserved0",
    ][::core::mem::offset_of!(quire_seq_info, reserved0) - 44usize];
};
impl Default for quire_seq_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_END_DROP_PREFIX: _bindgen_ty_33 = 1;
pub type _bindgen_ty_33 = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct quire_token_span {
    pub seq: quire_seq,
    pub position: u32,
    pub token_offset: u32,
    pub token_count: u32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_token_span"][::core::mem::size_of::<quire_token_span>() - 24usize];
    [
        "Alignment of quire_token_span",
    ][::core::mem::align_of::<quire_token_span>() - 8usize];
    [
        "Offset of field: quire_token_span::seq",
    ][::core::mem::offset_of!(quire_token_span, seq) - 0usize];
    [
        "Offset of field: quire_token_span::position",
    ][::core::mem::offset_of!(quire_token_span, position) - 8usize];
    [
        "Offset of field: quire_token_span::token_offset",
    ][::core::mem::offset_of!(quire_token_span, token_offset) - 12usize];
    [
        "Offset of field: quire_token_span::token_count",
    ][::core::mem::offset_of!(quire_token_span, token_count) - 16usize];
    [
        "Offset of field: quire_token_span::reserved0",
    ][::core::mem::offset_of!(quire_token_span, reserved0) - 20usize];
};
pub type quire_handover = u64;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_handover_send_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub fingerprint: [u8; 32usize],
    pub name_space: [u8; 32usize],
    pub tokens: *const quire_token,
    pub token_count: u32,
    pub reserved0: u32,
    pub staging_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_handover_send_desc",
    ][::core::mem::size_of::<quire_handover_send_desc>() - 104usize];
    [
        "Alignment of quire_handover_send_desc",
    ][::core::mem::align_of::<quire_handover_send_desc>() - 8usize];
    [
        "Offset of field: quire_handover_send_desc::struct_size",
    ][::core::mem::offset_of!(quire_handover_send_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_handover_send_desc::flags",
    ][::core::mem::offset_of!(quire_handover_send_desc, flags) - 4usize];
    [
        "Offset of field: quire_handover_send_desc::next",
    ][::core::mem::offset_of!(quire_handover_send_desc, next) - 8usize];
    [
        "Offset of field: quire_handover_send_desc::fingerprint",
    ][::core::mem::offset_of!(quire_handover_send_desc, fingerprint) - 16usize];
    [
        "Offset of field: quire_handover_send_desc::name_space",
    ][::core::mem::offset_of!(quire_handover_send_desc, name_space) - 48usize];
    [
        "Offset of field: quire_handover_send_desc::tokens",
    ][::core::mem::offset_of!(quire_handover_send_desc, tokens) - 80usize];
    [
        "Offset of field: quire_handover_send_desc::token_count",
    ][::core::mem::offset_of!(quire_handover_send_desc, token_count) - 88usize];
    [
        "Offset of field: quire_handover_send_desc::reserved0",
    ][::core::mem::offset_of!(quire_handover_send_desc, reserved0) - 92usize];
    [
        "Offset of field: quire_handover_send_desc::staging_bytes",
    ][::core::mem::offset_of!(quire_handover_send_desc, staging_bytes) - 96usize];
};
impl Default for quire_handover_send_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_handover_receive_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub fingerprint: [u8; 32usize],
    pub name_space: [u8; 32usize],
    pub seq: *const quire_seq_desc,
    pub tokens: *const quire_token,
    pub token_count: u32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_handover_receive_desc",
    ][::core::mem::size_of::<quire_handover_receive_desc>() - 104usize];
    [
        "Alignment of quire_handover_receive_desc",
    ][::core::mem::align_of::<quire_handover_receive_desc>() - 8usize];
    [
        "Offset of field: quire_handover_receive_desc::struct_size",
    ][::core::mem::offset_of!(quire_handover_receive_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_handover_receive_desc::flags",
    ][::core::mem::offset_of!(quire_handover_receive_desc, flags) - 4usize];
    [
        "Offset of field: quire_handover_receive_desc::next",
    ][::core::mem::offset_of!(quire_handover_receive_desc, next) - 8usize];
    [
        "Offset of field: quire_handover_receive_desc::fingerprint",
    ][::core::mem::offset_of!(quire_handover_receive_desc, fingerprint) - 16usize];
    [
        "Offset of field: quire_handover_receive_desc::name_space",
    ][::core::mem::offset_of!(quire_handover_receive_desc, name_space) - 48usize];
    [
        "Offset of field: quire_handover_receive_desc::seq",
    ][::core::mem::offset_of!(quire_handover_receive_desc, seq) - 80usize];
    [
        "Offset of field: quire_handover_receive_desc::tokens",
    ][::core::mem::offset_of!(quire_handover_receive_desc, tokens) - 88usize];
    [
        "Offset of field: quire_handover_receive_desc::token_count",
    ][::core::mem::offset_of!(quire_handover_receive_desc, token_count) - 96usize];
    [
        "Offset of field: quire_handover_receive_desc::reserved0",
    ][::core::mem::offset_of!(quire_handover_receive_desc, reserved0) - 100usize];
};
impl Default for quire_handover_receive_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_handover_progress {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub token_count: u32,
    pub is_whole: u32,
    pub cells: u64,
    pub cells_done: u64,
    pub size_bytes: u64,
    pub seq: quire_seq,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_handover_progress",
    ][::core::mem::size_of::<quire_handover_progress>() - 56usize];
    [
        "Alignment of quire_handover_progress",
    ][::core::mem::align_of::<quire_handover_progress>() - 8usize];
    [
        "Offset of field: quire_handover_progress::struct_size",
    ][::core::mem::offset_of!(quire_handover_progress, struct_size) - 0usize];
    [
        "Offset of field: quire_handover_progress::flags",
    ][::core::mem::offset_of!(quire_handover_progress, flags) - 4usize];
    [
        "Offset of field: quire_handover_progress::next",
    ][::core::mem::offset_of!(quire_handover_progress, next) - 8usize];
    [
        "Offset of field: quire_handover_progress::token_count",
    ][::core::mem::offset_of!(quire_handover_progress, token_count) - 16usize];
    [
        "Offset of field: quire_handover_progress::is_whole",
    ][::core::mem::offset_of!(quire_handover_progress, is_whole) - 20usize];
    [
        "Offset of field: quire_handover_progress::cells",
    ][::core::mem::offset_of!(quire_handover_progress, cells) - 24usize];
    [
        "Offset of field: quire_handover_progress::cells_done",
    ][::core::mem::offset_of!(quire_handover_progress, cells_done) - 32usize];
    [
        "Offset of field: quire_handover_progress::size_bytes",
    ][::core::mem::offset_of!(quire_handover_progress, size_bytes) - 40usize];
    [
        "Offset of field: quire_handover_progress::seq",
    ][::core::mem::offset_of!(quire_handover_progress, seq) - 48usize];
};
impl Default for quire_handover_progress {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_STEP_MAY_PREEMPT: _bindgen_ty_34 = 1;
pub type _bindgen_ty_34 = u32;
pub const QUIRE_PREEMPT_AUTO: _bindgen_ty_35 = 0;
pub const QUIRE_PREEMPT_SWAP: _bindgen_ty_35 = 1;
pub const QUIRE_PREEMPT_RECOMPUTE: _bindgen_ty_35 = 2;
pub type _bindgen_ty_35 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_step_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub queues: *const *mut quire_queue,
    pub queue_count: u32,
    pub preempt: u32,
    pub queue_tag: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_step_desc"][::core::mem::size_of::<quire_step_desc>() - 40usize];
    [
        "Alignment of quire_step_desc",
    ][::core::mem::align_of::<quire_step_desc>() - 8usize];
    [
        "Offset of field: quire_step_desc::struct_size",
    ][::core::mem::offset_of!(quire_step_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_step_desc::flags",
    ][::core::mem::offset_of!(quire_step_desc, flags) - 4usize];
    [
        "Offset of field: quire_step_desc::next",
    ][::core::mem::offset_of!(quire_step_desc, next) - 8usize];
    [
        "Offset of field: quire_step_desc::queues",
    ][::core::mem::offset_of!(quire_step_desc, queues) - 16usize];
    [
        "Offset of field: quire_step_desc::queue_count",
    ][::core::mem::offset_of!(quire_step_desc, queue_count) - 24usize];
    [
        "Offset of field: quire_step_desc::preempt",
    ][::core::mem::offset_of!(quire_step_desc, preempt) - 28usize];
    [
        "Offset of field: quire_step_desc::queue_tag",
    ][::core::mem::offset_of!(quire_step_desc, queue_tag) - 32usize];
};
impl Default for quire_step_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct quire_step_item {
    pub seq: quire_seq,
    pub token_offset: u32,
    pub token_count: u32,
    pub max_compute: u32,
    pub draft_count: u32,
    pub lookahead: u32,
    pub mask_kind: u32,
    pub mask_offset: u32,
    pub mask_rows: u32,
    pub max_hit_tokens: u32,
    pub flags: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_step_item"][::core::mem::size_of::<quire_step_item>() - 48usize];
    [
        "Alignment of quire_step_item",
    ][::core::mem::align_of::<quire_step_item>() - 8usize];
    [
        "Offset of field: quire_step_item::seq",
    ][::core::mem::offset_of!(quire_step_item, seq) - 0usize];
    [
        "Offset of field: quire_step_item::token_offset",
    ][::core::mem::offset_of!(quire_step_item, token_offset) - 8usize];
    [
        "Offset of field: quire_step_item::token_count",
    ][::core::mem::offset_of!(quire_step_item, token_count) - 12usize];
    [
        "Offset of field: quire_step_item::max_compute",
    ][::core::mem::offset_of!(quire_step_item, max_compute) - 16usize];
    [
        "Offset of field: quire_step_item::draft_count",
    ][::core::mem::offset_of!(quire_step_item, draft_count) - 20usize];
    [
        "Offset of field: quire_step_item::lookahead",
    ][::core::mem::offset_of!(quire_step_item, lookahead) - 24usize];
    [
        "Offset of field: quire_step_item::mask_kind",
    ][::core::mem::offset_of!(quire_step_item, mask_kind) - 28usize];
    [
        "Offset of field: quire_step_item::mask_offset",
    ][::core::mem::offset_of!(quire_step_item, mask_offset) - 32usize];
    [
        "Offset of field: quire_step_item::mask_rows",
    ][::core::mem::offset_of!(quire_step_item, mask_rows) - 36usize];
    [
        "Offset of field: quire_step_item::max_hit_tokens",
    ][::core::mem::offset_of!(quire_step_item, max_hit_tokens) - 40usize];
    [
        "Offset of field: quire_step_item::flags",
    ][::core::mem::offset_of!(quire_step_item, flags) - 44usize];
};
pub const QUIRE_ITEM_MAY_LOAD: _bindgen_ty_36 = 1;
pub type _bindgen_ty_36 = u32;
pub const QUIRE_MASK_NONE: _bindgen_ty_37 = 0;
pub const QUIRE_MASK_PARENTS: _bindgen_ty_37 = 1;
pub const QUIRE_MASK_BITS: _bindgen_ty_37 = 2;
pub type _bindgen_ty_37 = u32;
pub const QUIRE_ITEM_WAIT: _bindgen_ty_38 = 0;
pub const QUIRE_ITEM_RUN: _bindgen_ty_38 = 1;
pub const QUIRE_ITEM_LOADING: _bindgen_ty_38 = 2;
pub type _bindgen_ty_38 = u32;
pub const QUIRE_WAIT_POOL: _bindgen_ty_39 = 1;
pub const QUIRE_WAIT_WATERMARK: _bindgen_ty_39 = 2;
pub const QUIRE_WAIT_QUOTA: _bindgen_ty_39 = 3;
pub const QUIRE_WAIT_PREEMPTED: _bindgen_ty_39 = 4;
pub type _bindgen_ty_39 = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct quire_step_result {
    pub outcome: u32,
    pub reason: u32,
    pub hit_tokens: u32,
    pub first_position: u32,
    pub compute_count: u32,
    pub blocks_short: u32,
    pub row: u32,
    pub cross_tokens: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_step_result"][::core::mem::size_of::<quire_step_result>() - 32usize];
    [
        "Alignment of quire_step_result",
    ][::core::mem::align_of::<quire_step_result>() - 4usize];
    [
        "Offset of field: quire_step_result::outcome",
    ][::core::mem::offset_of!(quire_step_result, outcome) - 0usize];
    [
        "Offset of field: quire_step_result::reason",
    ][::core::mem::offset_of!(quire_step_result, reason) - 4usize];
    [
        "Offset of field: quire_step_result::hit_tokens",
    ][::core::mem::offset_of!(quire_step_result, hit_tokens) - 8usize];
    [
        "Offset of field: quire_step_result::first_position",
    ][::core::mem::offset_of!(quire_step_result, first_position) - 12usize];
    [
        "Offset of field: quire_step_result::compute_count",
    ][::core::mem::offset_of!(quire_step_result, compute_count) - 16usize];
    [
        "Offset of field: quire_step_result::blocks_short",
    ][::core::mem::offset_of!(quire_step_result, blocks_short) - 20usize];
    [
        "Offset of field: quire_step_result::row",
    ][::core::mem::offset_of!(quire_step_result, row) - 24usize];
    [
        "Offset of field: quire_step_result::cross_tokens",
    ][::core::mem::offset_of!(quire_step_result, cross_tokens) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct quire_preemption {
    pub seq: quire_seq,
    pub how: u32,
    pub chosen_by: u32,
    pub computed_tokens: u32,
    pub blocks: u32,
    pub for_seq: quire_seq,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_preemption"][::core::mem::size_of::<quire_preemption>() - 32usize];
    [
        "Alignment of quire_preemption",
    ][::core::mem::align_of::<quire_preemption>() - 8usize];
    [
        "Offset of field: quire_preemption::seq",
    ][::core::mem::offset_of!(quire_preemption, seq) - 0usize];
    [
        "Offset of field: quire_preemption::how",
    ][::core::mem::offset_of!(quire_preemption, how) - 8usize];
    [
        "Offset of field: quire_preemption::chosen_by",
    ][::core::mem::offset_of!(quire_preemption, chosen_by) - 12usize];
    [
        "Offset of field: quire_preemption::computed_tokens",
    ][::core::mem::offset_of!(quire_preemption, computed_tokens) - 16usize];
    [
        "Offset of field: quire_preemption::blocks",
    ][::core::mem::offset_of!(quire_preemption, blocks) - 20usize];
    [
        "Offset of field: quire_preemption::for_seq",
    ][::core::mem::offset_of!(quire_preemption, for_seq) - 24usize];
};
pub const QUIRE_STEP_OK: _bindgen_ty_40 = 0;
pub const QUIRE_STEP_FAILED: _bindgen_ty_40 = 1;
pub type _bindgen_ty_40 = u32;
pub const QUIRE_COPY_ON_WRITE: _bindgen_ty_41 = 0;
pub const QUIRE_COPY_SWAP_OUT: _bindgen_ty_41 = 1;
pub const QUIRE_COPY_SWAP_IN: _bindgen_ty_41 = 2;
pub const QUIRE_COPY_TOKEN: _bindgen_ty_41 = 3;
pub const QUIRE_COPY_ZERO: _bindgen_ty_41 = 4;
pub type _bindgen_ty_41 = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct quire_block_copy {
    pub kind: u32,
    pub group: u32,
    pub src: i32,
    pub dst: i32,
    pub src_place: u32,
    pub dst_place: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_block_copy"][::core::mem::size_of::<quire_block_copy>() - 24usize];
    [
        "Alignment of quire_block_copy",
    ][::core::mem::align_of::<quire_block_copy>() - 4usize];
    [
        "Offset of field: quire_block_copy::kind",
    ][::core::mem::offset_of!(quire_block_copy, kind) - 0usize];
    [
        "Offset of field: quire_block_copy::group",
    ][::core::mem::offset_of!(quire_block_copy, group) - 4usize];
    [
        "Offset of field: quire_block_copy::src",
    ][::core::mem::offset_of!(quire_block_copy, src) - 8usize];
    [
        "Offset of field: quire_block_copy::dst",
    ][::core::mem::offset_of!(quire_block_copy, dst) - 12usize];
    [
        "Offset of field: quire_block_copy::src_place",
    ][::core::mem::offset_of!(quire_block_copy, src_place) - 16usize];
    [
        "Offset of field: quire_block_copy::dst_place",
    ][::core::mem::offset_of!(quire_block_copy, dst_place) - 20usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_lease_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub ns: quire_namespace,
    pub keys: *const quire_key,
    pub key_count: u32,
    pub key_stride: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_lease_desc"][::core::mem::size_of::<quire_lease_desc>() - 40usize];
    [
        "Alignment of quire_lease_desc",
    ][::core::mem::align_of::<quire_lease_desc>() - 8usize];
    [
        "Offset of field: quire_lease_desc::struct_size",
    ][::core::mem::offset_of!(quire_lease_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_lease_desc::flags",
    ][::core::mem::offset_of!(quire_lease_desc, flags) - 4usize];
    [
        "Offset of field: quire_lease_desc::next",
    ][::core::mem::offset_of!(quire_lease_desc, next) - 8usize];
    [
        "Offset of field: quire_lease_desc::ns",
    ][::core::mem::offset_of!(quire_lease_desc, ns) - 16usize];
    [
        "Offset of field: quire_lease_desc::keys",
    ][::core::mem::offset_of!(quire_lease_desc, keys) - 24usize];
    [
        "Offset of field: quire_lease_desc::key_count",
    ][::core::mem::offset_of!(quire_lease_desc, key_count) - 32usize];
    [
        "Offset of field: quire_lease_desc::key_stride",
    ][::core::mem::offset_of!(quire_lease_desc, key_stride) - 36usize];
};
impl Default for quire_lease_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_lease_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub ns: quire_namespace,
    pub blocks_held: u64,
    pub holds: u64,
    pub blocks_lost: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_lease_info"][::core::mem::size_of::<quire_lease_info>() - 48usize];
    [
        "Alignment of quire_lease_info",
    ][::core::mem::align_of::<quire_lease_info>() - 8usize];
    [
        "Offset of field: quire_lease_info::struct_size",
    ][::core::mem::offset_of!(quire_lease_info, struct_size) - 0usize];
    [
        "Offset of field: quire_lease_info::flags",
    ][::core::mem::offset_of!(quire_lease_info, flags) - 4usize];
    [
        "Offset of field: quire_lease_info::next",
    ][::core::mem::offset_of!(quire_lease_info, next) - 8usize];
    [
        "Offset of field: quire_lease_info::ns",
    ][::core::mem::offset_of!(quire_lease_info, ns) - 16usize];
    [
        "Offset of field: quire_lease_info::blocks_held",
    ][::core::mem::offset_of!(quire_lease_info, blocks_held) - 24usize];
    [
        "Offset of field: quire_lease_info::holds",
    ][::core::mem::offset_of!(quire_lease_info, holds) - 32usize];
    [
        "Offset of field: quire_lease_info::blocks_lost",
    ][::core::mem::offset_of!(quire_lease_info, blocks_lost) - 40usize];
};
impl Default for quire_lease_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_lease_result {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub blocks: u32,
    pub blocks_short: u32,
    pub reason: u32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_lease_result",
    ][::core::mem::size_of::<quire_lease_result>() - 32usize];
    [
        "Alignment of quire_lease_result",
    ][::core::mem::align_of::<quire_lease_result>() - 8usize];
    [
        "Offset of field: quire_lease_result::struct_size",
    ][::core::mem::offset_of!(quire_lease_result, struct_size) - 0usize];
    [
        "Offset of field: quire_lease_result::flags",
    ][::core::mem::offset_of!(quire_lease_result, flags) - 4usize];
    [
        "Offset of field: quire_lease_result::next",
    ][::core::mem::offset_of!(quire_lease_result, next) - 8usize];
    [
        "Offset of field: quire_lease_result::blocks",
    ][::core::mem::offset_of!(quire_lease_result, blocks) - 16usize];
    [
        "Offset of field: quire_lease_result::blocks_short",
    ][::core::mem::offset_of!(quire_lease_result, blocks_short) - 20usize];
    [
        "Offset of field: quire_lease_result::reason",
    ][::core::mem::offset_of!(quire_lease_result, reason) - 24usize];
    [
        "Offset of field: quire_lease_result::reserved0",
    ][::core::mem::offset_of!(quire_lease_result, reserved0) - 28usize];
};
impl Default for quire_lease_result {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_LEASE_PUBLISHED: _bindgen_ty_42 = 1;
pub const QUIRE_LEASE_OWNED: _bindgen_ty_42 = 2;
pub type _bindgen_ty_42 = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct quire_lease_block {
    pub block: i32,
    pub holds: u32,
    pub flags: u32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_lease_block"][::core::mem::size_of::<quire_lease_block>() - 16usize];
    [
        "Alignment of quire_lease_block",
    ][::core::mem::align_of::<quire_lease_block>() - 4usize];
    [
        "Offset of field: quire_lease_block::block",
    ][::core::mem::offset_of!(quire_lease_block, block) - 0usize];
    [
        "Offset of field: quire_lease_block::holds",
    ][::core::mem::offset_of!(quire_lease_block, holds) - 4usize];
    [
        "Offset of field: quire_lease_block::flags",
    ][::core::mem::offset_of!(quire_lease_block, flags) - 8usize];
    [
        "Offset of field: quire_lease_block::reserved0",
    ][::core::mem::offset_of!(quire_lease_block, reserved0) - 12usize];
};
pub const QUIRE_MATCH_LOOK: _bindgen_ty_43 = 0;
pub const QUIRE_MATCH_TOUCH: _bindgen_ty_43 = 1;
pub const QUIRE_MATCH_PIN: _bindgen_ty_43 = 2;
pub type _bindgen_ty_43 = u32;
pub const QUIRE_MIGRATE_COPY_HOST_TIER: _bindgen_ty_44 = 1;
pub type _bindgen_ty_44 = u32;
pub const QUIRE_TIER_DEVICE: _bindgen_ty_45 = 0;
pub const QUIRE_TIER_HOST: _bindgen_ty_45 = 1;
pub type _bindgen_ty_45 = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct quire_block_move {
    pub group: u32,
    pub tier: u32,
    pub src: i32,
    pub dst: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_block_move"][::core::mem::size_of::<quire_block_move>() - 16usize];
    [
        "Alignment of quire_block_move",
    ][::core::mem::align_of::<quire_block_move>() - 4usize];
    [
        "Offset of field: quire_block_move::group",
    ][::core::mem::offset_of!(quire_block_move, group) - 0usize];
    [
        "Offset of field: quire_block_move::tier",
    ][::core::mem::offset_of!(quire_block_move, tier) - 4usize];
    [
        "Offset of field: quire_block_move::src",
    ][::core::mem::offset_of!(quire_block_move, src) - 8usize];
    [
        "Offset of field: quire_block_move::dst",
    ][::core::mem::offset_of!(quire_block_move, dst) - 12usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_migrate_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub shards: *const quire_shard_desc,
    pub group_blocks: *const u32,
    pub moves: *mut quire_block_move,
    pub shard_count: u32,
    pub shard_stride: u32,
    pub move_capacity: u32,
    pub move_stride: u32,
    pub blocks: u32,
    pub pool_fraction: f32,
    pub pool_bytes: u64,
    pub reserve_bytes: u64,
    pub host_bytes: u64,
    pub host_blocks: u32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_migrate_desc",
    ][::core::mem::size_of::<quire_migrate_desc>() - 96usize];
    [
        "Alignment of quire_migrate_desc",
    ][::core::mem::align_of::<quire_migrate_desc>() - 8usize];
    [
        "Offset of field: quire_migrate_desc::struct_size",
    ][::core::mem::offset_of!(quire_migrate_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_migrate_desc::flags",
    ][::core::mem::offset_of!(quire_migrate_desc, flags) - 4usize];
    [
        "Offset of field: quire_migrate_desc::next",
    ][::core::mem::offset_of!(quire_migrate_desc, next) - 8usize];
    [
        "Offset of field: quire_migrate_desc::shards",
    ][::core::mem::offset_of!(quire_migrate_desc, shards) - 16usize];
    [
        "Offset of field: quire_migrate_desc::group_blocks",
    ][::core::mem::offset_of!(quire_migrate_desc, group_blocks) - 24usize];
    [
        "Offset of field: quire_migrate_desc::moves",
    ][::core::mem::offset_of!(quire_migrate_desc, moves) - 32usize];
    [
        "Offset of field: quire_migrate_desc::shard_count",
    ][::core::mem::offset_of!(quire_migrate_desc, shard_count) - 40usize];
    [
        "Offset of field: quire_migrate_desc::shard_stride",
    ][::core::mem::offset_of!(quire_migrate_desc, shard_stride) - 44usize];
    [
        "Offset of field: quire_migrate_desc::move_capacity",
    ][::core::mem::offset_of!(quire_migrate_desc, move_capacity) - 48usize];
    [
        "Offset of field: quire_migrate_desc::move_stride",
    ][::core::mem::offset_of!(quire_migrate_desc, move_stride) - 52usize];
    [
        "Offset of field: quire_migrate_desc::blocks",
    ][::core::mem::offset_of!(quire_migrate_desc, blocks) - 56usize];
    [
        "Offset of field: quire_migrate_desc::pool_fraction",
    ][::core::mem::offset_of!(quire_migrate_desc, pool_fraction) - 60usize];
    [
        "Offset of field: quire_migrate_desc::pool_bytes",
    ][::core::mem::offset_of!(quire_migrate_desc, pool_bytes) - 64usize];
    [
        "Offset of field: quire_migrate_desc::reserve_bytes",
    ][::core::mem::offset_of!(quire_migrate_desc, reserve_bytes) - 72usize];
    [
        "Offset of field: quire_migrate_desc::host_bytes",
    ][::core::mem::offset_of!(quire_migrate_desc, host_bytes) - 80usize];
    [
        "Offset of field: quire_migrate_desc::host_blocks",
    ][::core::mem::offset_of!(quire_migrate_desc, host_blocks) - 88usize];
    [
        "Offset of field: quire_migrate_desc::reserved0",
    ][::core::mem::offset_of!(quire_migrate_desc, reserved0) - 92usize];
};
impl Default for quire_migrate_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_migrate_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub blocks_moved: u64,
    pub blocks_dropped: u64,
    pub bytes_moved: u64,
    pub live_bytes: u64,
    pub host_blocks_kept: u64,
    pub host_blocks_copied: u64,
    pub host_bytes_copied: u64,
    pub move_count: u32,
    pub blocks_short: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_migrate_info",
    ][::core::mem::size_of::<quire_migrate_info>() - 80usize];
    [
        "Alignment of quire_migrate_info",
    ][::core::mem::align_of::<quire_migrate_info>() - 8usize];
    [
        "Offset of field: quire_migrate_info::struct_size",
    ][::core::mem::offset_of!(quire_migrate_info, struct_size) - 0usize];
    [
        "Offset of field: quire_migrate_info::flags",
    ][::core::mem::offset_of!(quire_migrate_info, flags) - 4usize];
    [
        "Offset of field: quire_migrate_info::next",
    ][::core::mem::offset_of!(quire_migrate_info, next) - 8usize];
    [
        "Offset of field: quire_migrate_info::blocks_moved",
    ][::core::mem::offset_of!(quire_migrate_info, blocks_moved) - 16usize];
    [
        "Offset of field: quire_migrate_info::blocks_dropped",
    ][::core::mem::offset_of!(quire_migrate_info, blocks_dropped) - 24usize];
    [
        "Offset of field: quire_migrate_info::bytes_moved",
    ][::core::mem::offset_of!(quire_migrate_info, bytes_moved) - 32usize];
    [
        "Offset of field: quire_migrate_info::live_bytes",
    ][::core::mem::offset_of!(quire_migrate_info, live_bytes) - 40usize];
    [
        "Offset of field: quire_migrate_info::host_blocks_kept",
    ][::core::mem::offset_of!(quire_migrate_info, host_blocks_kept) - 48usize];
    [
        "Offset of field: quire_migrate_info::host_blocks_copied",
    ][::core::mem::offset_of!(quire_migrate_info, host_blocks_copied) - 56usize];
    [
        "Offset of field: quire_migrate_info::host_bytes_copied",
    ][::core::mem::offset_of!(quire_migrate_info, host_bytes_copied) - 64usize];
    [
        "Offset of field: quire_migrate_info::move_count",
    ][::core::mem::offset_of!(quire_migrate_info, move_count) - 72usize];
    [
        "Offset of field: quire_migrate_info::blocks_short",
    ][::core::mem::offset_of!(quire_migrate_info, blocks_short) - 76usize];
};
impl Default for quire_migrate_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type quire_session_write = ::core::option::Option<
    unsafe extern "C" fn(
        user: *mut ::core::ffi::c_void,
        bytes: *const ::core::ffi::c_void,
        size_bytes: u64,
    ) -> quire_status,
>;
pub type quire_session_read = ::core::option::Option<
    unsafe extern "C" fn(
        user: *mut ::core::ffi::c_void,
        bytes: *mut ::core::ffi::c_void,
        size_bytes: u64,
    ) -> quire_status,
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_export_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub fingerprint: [u8; 32usize],
    pub name_space: [u8; 32usize],
    pub write: quire_session_write,
    pub user: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_export_desc"][::core::mem::size_of::<quire_export_desc>() - 96usize];
    [
        "Alignment of quire_export_desc",
    ][::core::mem::align_of::<quire_export_desc>() - 8usize];
    [
        "Offset of field: quire_export_desc::struct_size",
    ][::core::mem::offset_of!(quire_export_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_export_desc::flags",
    ][::core::mem::offset_of!(quire_export_desc, flags) - 4usize];
    [
        "Offset of field: quire_export_desc::next",
    ][::core::mem::offset_of!(quire_export_desc, next) - 8usize];
    [
        "Offset of field: quire_export_desc::fingerprint",
    ][::core::mem::offset_of!(quire_export_desc, fingerprint) - 16usize];
    [
        "Offset of field: quire_export_desc::name_space",
    ][::core::mem::offset_of!(quire_export_desc, name_space) - 48usize];
    [
        "Offset of field: quire_export_desc::write",
    ][::core::mem::offset_of!(quire_export_desc, write) - 80usize];
    [
        "Offset of field: quire_export_desc::user",
    ][::core::mem::offset_of!(quire_export_desc, user) - 88usize];
};
impl Default for quire_export_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_import_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub fingerprint: [u8; 32usize],
    pub name_space: [u8; 32usize],
    pub seq: *const quire_seq_desc,
    pub read: quire_session_read,
    pub user: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_import_desc",
    ][::core::mem::size_of::<quire_import_desc>() - 104usize];
    [
        "Alignment of quire_import_desc",
    ][::core::mem::align_of::<quire_import_desc>() - 8usize];
    [
        "Offset of field: quire_import_desc::struct_size",
    ][::core::mem::offset_of!(quire_import_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_import_desc::flags",
    ][::core::mem::offset_of!(quire_import_desc, flags) - 4usize];
    [
        "Offset of field: quire_import_desc::next",
    ][::core::mem::offset_of!(quire_import_desc, next) - 8usize];
    [
        "Offset of field: quire_import_desc::fingerprint",
    ][::core::mem::offset_of!(quire_import_desc, fingerprint) - 16usize];
    [
        "Offset of field: quire_import_desc::name_space",
    ][::core::mem::offset_of!(quire_import_desc, name_space) - 48usize];
    [
        "Offset of field: quire_import_desc::seq",
    ][::core::mem::offset_of!(quire_import_desc, seq) - 80usize];
    [
        "Offset of field: quire_import_desc::read",
    ][::core::mem::offset_of!(quire_import_desc, read) - 88usize];
    [
        "Offset of field: quire_import_desc::user",
    ][::core::mem::offset_of!(quire_import_desc, user) - 96usize];
};
impl Default for quire_import_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_session_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub known_tokens: u32,
    pub computed_tokens: u32,
    pub blocks: u64,
    pub size_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_session_info",
    ][::core::mem::size_of::<quire_session_info>() - 40usize];
    [
        "Alignment of quire_session_info",
    ][::core::mem::align_of::<quire_session_info>() - 8usize];
    [
        "Offset of field: quire_session_info::struct_size",
    ][::core::mem::offset_of!(quire_session_info, struct_size) - 0usize];
    [
        "Offset of field: quire_session_info::flags",
    ][::core::mem::offset_of!(quire_session_info, flags) - 4usize];
    [
        "Offset of field: quire_session_info::next",
    ][::core::mem::offset_of!(quire_session_info, next) - 8usize];
    [
        "Offset of field: quire_session_info::known_tokens",
    ][::core::mem::offset_of!(quire_session_info, known_tokens) - 16usize];
    [
        "Offset of field: quire_session_info::computed_tokens",
    ][::core::mem::offset_of!(quire_session_info, computed_tokens) - 20usize];
    [
        "Offset of field: quire_session_info::blocks",
    ][::core::mem::offset_of!(quire_session_info, blocks) - 24usize];
    [
        "Offset of field: quire_session_info::size_bytes",
    ][::core::mem::offset_of!(quire_session_info, size_bytes) - 32usize];
};
impl Default for quire_session_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_SIZE_LATENT: _bindgen_ty_46 = 1;
pub type _bindgen_ty_46 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_size_desc {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub parameters: u64,
    pub layer_count: u32,
    pub kv_heads: u32,
    pub q_heads: u32,
    pub k_head_dim: u32,
    pub v_head_dim: u32,
    pub kv_bits: u32,
    pub weight_bits: u32,
    pub block_tokens: u32,
    pub batch: u32,
    pub device_count: u32,
    pub context_tokens: u64,
    pub memory_bytes: u64,
    pub reserve_bytes: u64,
    pub utilization: f64,
    pub bytes_per_second: f64,
    pub operations_per_second: f64,
    pub scale_bytes: u32,
    pub reserved0: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_size_desc"][::core::mem::size_of::<quire_size_desc>() - 120usize];
    [
        "Alignment of quire_size_desc",
    ][::core::mem::align_of::<quire_size_desc>() - 8usize];
    [
        "Offset of field: quire_size_desc::struct_size",
    ][::core::mem::offset_of!(quire_size_desc, struct_size) - 0usize];
    [
        "Offset of field: quire_size_desc::flags",
    ][::core::mem::offset_of!(quire_size_desc, flags) - 4usize];
    [
        "Offset of field: quire_size_desc::next",
    ][::core::mem::offset_of!(quire_size_desc, next) - 8usize];
    [
        "Offset of field: quire_size_desc::parameters",
    ][::core::mem::offset_of!(quire_size_desc, parameters) - 16usize];
    [
        "Offset of field: quire_size_desc::layer_count",
    ][::core::mem::offset_of!(quire_size_desc, layer_count) - 24usize];
    [
        "Offset of field: quire_size_desc::kv_heads",
    ][::core::mem::offset_of!(quire_size_desc, kv_heads) - 28usize];
    [
        "Offset of field: quire_size_desc::q_heads",
    ][::core::mem::offset_of!(quire_size_desc, q_heads) - 32usize];
    [
        "Offset of field: quire_size_desc::k_head_dim",
    ][::core::mem::offset_of!(quire_size_desc, k_head_dim) - 36usize];
    [
        "Offset of field: quire_size_desc::v_head_dim",
    ][::core::mem::offset_of!(quire_size_desc, v_head_dim) - 40usize];
    [
        "Offset of field: quire_size_desc::kv_bits",
    ][::core::mem::offset_of!(quire_size_desc, kv_bits) - 44usize];
    [
        "Offset of field: quire_size_desc::weight_bits",
    ][::core::mem::offset_of!(quire_size_desc, weight_bits) - 48usize];
    [
        "Offset of field: quire_size_desc::block_tokens",
    ][::core::mem::offset_of!(quire_size_desc, block_tokens) - 52usize];
    [
        "Offset of field: quire_size_desc::batch",
    ][::core::mem::offset_of!(quire_size_desc, batch) - 56usize];
    [
        "Offset of field: quire_size_desc::device_count",
    ][::core::mem::offset_of!(quire_size_desc, device_count) - 60usize];
    [
        "Offset of field: quire_size_desc::context_tokens",
    ][::core::mem::offset_of!(quire_size_desc, context_tokens) - 64usize];
    [
        "Offset of field: quire_size_desc::memory_bytes",
    ][::core::mem::offset_of!(quire_size_desc, memory_bytes) - 72usize];
    [
        "Offset of field: quire_size_desc::reserve_bytes",
    ][::core::mem::offset_of!(quire_size_desc, reserve_bytes) - 80usize];
    [
        "Offset of field: quire_size_desc::utilization",
    ][::core::mem::offset_of!(quire_size_desc, utilization) - 88usize];
    [
        "Offset of field: quire_size_desc::bytes_per_second",
    ][::core::mem::offset_of!(quire_size_desc, bytes_per_second) - 96usize];
    [
        "Offset of field: quire_size_desc::operations_per_second",
    ][::core::mem::offset_of!(quire_size_desc, operations_per_second) - 104usize];
    [
        "Offset of field: quire_size_desc::scale_bytes",
    ][::core::mem::offset_of!(quire_size_desc, scale_bytes) - 112usize];
    [
        "Offset of field: quire_size_desc::reserved0",
    ][::core::mem::offset_of!(quire_size_desc, reserved0) - 116usize];
};
impl Default for quire_size_desc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const QUIRE_BOUND_UNKNOWN: _bindgen_ty_47 = 0;
pub const QUIRE_BOUND_BANDWIDTH: _bindgen_ty_47 = 1;
pub const QUIRE_BOUND_COMPUTE: _bindgen_ty_47 = 2;
pub type _bindgen_ty_47 = u32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_size_info {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const quire_chain,
    pub kv_bytes_per_token: u64,
    pub pool_bytes: u64,
    pub blocks: u64,
    pub tokens: u64,
    pub max_sequences: u64,
    pub batch: u32,
    pub bound: u32,
    pub step_seconds: f64,
    pub tokens_per_second: f64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_size_info"][::core::mem::size_of::<quire_size_info>() - 80usize];
    [
        "Alignment of quire_size_info",
    ][::core::mem::align_of::<quire_size_info>() - 8usize];
    [
        "Offset of field: quire_size_info::struct_size",
    ][::core::mem::offset_of!(quire_size_info, struct_size) - 0usize];
    [
        "Offset of field: quire_size_info::flags",
    ][::core::mem::offset_of!(quire_size_info, flags) - 4usize];
    [
        "Offset of field: quire_size_info::next",
    ][::core::mem::offset_of!(quire_size_info, next) - 8usize];
    [
        "Offset of field: quire_size_info::kv_bytes_per_token",
    ][::core::mem::offset_of!(quire_size_info, kv_bytes_per_token) - 16usize];
    [
        "Offset of field: quire_size_info::pool_bytes",
    ][::core::mem::offset_of!(quire_size_info, pool_bytes) - 24usize];
    [
        "Offset of field: quire_size_info::blocks",
    ][::core::mem::offset_of!(quire_size_info, blocks) - 32usize];
    [
        "Offset of field: quire_size_info::tokens",
    ][::core::mem::offset_of!(quire_size_info, tokens) - 40usize];
    [
        "Offset of field: quire_size_info::max_sequences",
    ][::core::mem::offset_of!(quire_size_info, max_sequences) - 48usize];
    [
        "Offset of field: quire_size_info::batch",
    ][::core::mem::offset_of!(quire_size_info, batch) - 56usize];
    [
        "Offset of field: quire_size_info::bound",
    ][::core::mem::offset_of!(quire_size_info, bound) - 60usize];
    [
        "Offset of field: quire_size_info::step_seconds",
    ][::core::mem::offset_of!(quire_size_info, step_seconds) - 64usize];
    [
        "Offset of field: quire_size_info::tokens_per_second",
    ][::core::mem::offset_of!(quire_size_info, tokens_per_second) - 72usize];
};
impl Default for quire_size_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct quire_api {
    pub struct_size: u32,
    pub major: u32,
    pub minor: u32,
    pub reserved0: u32,
    pub instance_create: ::core::option::Option<
        unsafe extern "C" fn(
            desc: *const quire_instance_desc,
            out: *mut *mut quire_instance,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub instance_destroy: ::core::option::Option<
        unsafe extern "C" fn(
            instance: *mut quire_instance,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub backend_count: ::core::option::Option<
        unsafe extern "C" fn(
            instance: *mut quire_instance,
            count: *mut u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub backend_get_info: ::core::option::Option<
        unsafe extern "C" fn(
            instance: *mut quire_instance,
            index: u32,
            info: *mut quire_backend_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub backend_load: ::core::option::Option<
        unsafe extern "C" fn(
            instance: *mut quire_instance,
            path: *const ::core::ffi::c_char,
            index: *mut u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub device_open: ::core::option::Option<
        unsafe extern "C" fn(
            instance: *mut quire_instance,
            desc: *const quire_device_desc,
            out: *mut *mut quire_device,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub device_close: ::core::option::Option<
        unsafe extern "C" fn(
            device: *mut quire_device,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub device_get_info: ::core::option::Option<
        unsafe extern "C" fn(
            device: *mut quire_device,
            info: *mut quire_device_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub queue_create: ::core::option::Option<
        unsafe extern "C" fn(
            device: *mut quire_device,
            native: *const quire_native,
            out: *mut *mut quire_queue,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub queue_destroy: ::core::option::Option<
        unsafe extern "C" fn(
            queue: *mut quire_queue,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub queue_sync: ::core::option::Option<
        unsafe extern "C" fn(
            queue: *mut quire_queue,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub fence_create: ::core::option::Option<
        unsafe extern "C" fn(
            device: *mut quire_device,
            value: u64,
            out: *mut *mut quire_fence,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub fence_destroy: ::core::option::Option<
        unsafe extern "C" fn(
            fence: *mut quire_fence,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub fence_read: ::core::option::Option<
        unsafe extern "C" fn(
            fence: *mut quire_fence,
            value: *mut u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub fence_signal: ::core::option::Option<
        unsafe extern "C" fn(
            fence: *mut quire_fence,
            value: u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub fence_wait: ::core::option::Option<
        unsafe extern "C" fn(
            fence: *mut quire_fence,
            value: u64,
            timeout_ns: u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub queue_signal: ::core::option::Option<
        unsafe extern "C" fn(
            queue: *mut quire_queue,
            fence: *mut quire_fence,
            value: u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub queue_after: ::core::option::Option<
        unsafe extern "C" fn(
            queue: *mut quire_queue,
            fence: *mut quire_fence,
            value: u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub memory_create: ::core::option::Option<
        unsafe extern "C" fn(
            device: *mut quire_device,
            desc: *const quire_memory_desc,
            out: *mut *mut quire_memory,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub memory_destroy: ::core::option::Option<
        unsafe extern "C" fn(
            memory: *mut quire_memory,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub memory_get_info: ::core::option::Option<
        unsafe extern "C" fn(
            memory: *mut quire_memory,
            info: *mut quire_memory_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub memory_copy: ::core::option::Option<
        unsafe extern "C" fn(
            queue: *mut quire_queue,
            dst: *mut quire_memory,
            dst_offset: u64,
            src: *mut quire_memory,
            src_offset: u64,
            size_bytes: u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_create: ::core::option::Option<
        unsafe extern "C" fn(
            instance: *mut quire_instance,
            desc: *const quire_cache_desc,
            out: *mut *mut quire_cache,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_destroy: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_get_info: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            info: *mut quire_cache_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_get_pool: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            group: u32,
            shard: u32,
            info: *mut quire_pool_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_get_stats: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            stats: *mut quire_cache_stats,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_reset: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_check: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub namespace_create: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            desc: *const quire_namespace_desc,
            out: *mut quire_namespace,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub namespace_destroy: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            ns: quire_namespace,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub namespace_get_info: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            ns: quire_namespace,
            info: *mut quire_namespace_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub seq_create: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            desc: *const quire_seq_desc,
            out: *mut quire_seq,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub seq_end: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            seq: quire_seq,
            flags: u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub seq_fork: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            seq: quire_seq,
            token_count: u32,
            out: *mut quire_seq,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub seq_truncate: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            seq: quire_seq,
            token_count: u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub seq_accept: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            seq: quire_seq,
            count: u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub seq_set_tokens: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            spans: *const quire_token_span,
            span_count: u32,
            span_stride: u32,
            tokens: *const quire_token,
            token_count: u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub seq_get_info: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            seq: quire_seq,
            info: *mut quire_seq_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub prefix_probe: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            seq: quire_seq,
            tokens: *const quire_token,
            token_count: u32,
            hit_tokens: *mut u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub step_begin: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            desc: *const quire_step_desc,
            items: *const quire_step_item,
            item_count: u32,
            item_stride: u32,
            tokens: *const quire_token,
            token_count: u32,
            results: *mut quire_step_result,
            result_stride: u32,
            out: *mut quire_step,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub step_add: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            items: *const quire_step_item,
            item_count: u32,
            item_stride: u32,
            tokens: *const quire_token,
            token_count: u32,
            results: *mut quire_step_result,
            result_stride: u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub step_drop: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            seq: quire_seq,
            dropped: *mut quire_seq,
            capacity: u32,
            count: *mut u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub step_preempt: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            seq: quire_seq,
            how: u32,
            freed_blocks: *mut u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub step_preempted: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            out: *mut quire_preemption,
            capacity: u32,
            stride: u32,
            count: *mut u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub step_abort: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub step_commit: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            batch: *mut quire_batch,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub step_finish: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            signal: *const quire_native,
            outcome: u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub step_blocks: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            seq: quire_seq,
            group: u32,
            first: u32,
            ids: *mut i32,
            capacity: u32,
            count: *mut u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub step_copies: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            out: *mut quire_block_copy,
            capacity: u32,
            stride: u32,
            count: *mut u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub batch_create: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            desc: *const quire_batch_desc,
            out: *mut *mut quire_batch,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub batch_destroy: ::core::option::Option<
        unsafe extern "C" fn(
            batch: *mut quire_batch,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub batch_get_views: ::core::option::Option<
        unsafe extern "C" fn(
            batch: *mut quire_batch,
            group: u32,
            shard: u32,
            views: *mut quire_batch_views,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub kv_write: ::core::option::Option<
        unsafe extern "C" fn(
            batch: *mut quire_batch,
            args: *const quire_kv_args,
            queue: *mut quire_queue,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub attend: ::core::option::Option<
        unsafe extern "C" fn(
            batch: *mut quire_batch,
            args: *const quire_attend_args,
            queue: *mut quire_queue,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub size_estimate: ::core::option::Option<
        unsafe extern "C" fn(
            desc: *const quire_size_desc,
            info: *mut quire_size_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub seq_accept_path: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            seq: quire_seq,
            path: *const u32,
            count: u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub attention_merge: ::core::option::Option<
        unsafe extern "C" fn(
            queue: *mut quire_queue,
            args: *const quire_merge_args,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub step_log: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            buffer: *mut ::core::ffi::c_void,
            capacity: u64,
            size_bytes: *mut u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub log_apply: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            bytes: *const ::core::ffi::c_void,
            size_bytes: u64,
            desc: *const quire_step_desc,
            batch: *mut quire_batch,
            out: *mut quire_step,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_save_calibration_wait: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            buffer: *mut ::core::ffi::c_void,
            capacity: u64,
            size_bytes: *mut u64,
            timeout_ns: u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub calibration_merge: ::core::option::Option<
        unsafe extern "C" fn(
            a: *const ::core::ffi::c_void,
            a_bytes: u64,
            b: *const ::core::ffi::c_void,
            b_bytes: u64,
            out: *mut ::core::ffi::c_void,
            capacity: u64,
            size_bytes: *mut u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub calibration_get_info: ::core::option::Option<
        unsafe extern "C" fn(
            bytes: *const ::core::ffi::c_void,
            size_bytes: u64,
            info: *mut quire_calibration_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub calibration_get_layer: ::core::option::Option<
        unsafe extern "C" fn(
            bytes: *const ::core::ffi::c_void,
            size_bytes: u64,
            layer: u32,
            info: *mut quire_calibration_layer,
            amax: *mut f32,
            capacity: u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_migrate: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            desc: *const quire_migrate_desc,
            info: *mut quire_migrate_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_migrate_wait: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            desc: *const quire_migrate_desc,
            info: *mut quire_migrate_info,
            timeout_ns: u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub queue_signal_native: ::core::option::Option<
        unsafe extern "C" fn(
            queue: *mut quire_queue,
            native: *const quire_native,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub queue_after_native: ::core::option::Option<
        unsafe extern "C" fn(
            queue: *mut quire_queue,
            native: *const quire_native,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_dump: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            flags: u32,
            buffer: *mut ::core::ffi::c_void,
            capacity: u64,
            size_bytes: *mut u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_abandon: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            info: *mut quire_abandon_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub queue_abandon: ::core::option::Option<
        unsafe extern "C" fn(
            queue: *mut quire_queue,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub device_abandon: ::core::option::Option<
        unsafe extern "C" fn(
            device: *mut quire_device,
            info: *mut quire_abandon_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_events: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            flags: u32,
            events: *mut quire_cache_event,
            capacity: u32,
            stride: u32,
            tokens: *mut quire_token,
            token_capacity: u32,
            info: *mut quire_events_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub seq_export_wait: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            seq: quire_seq,
            desc: *const quire_export_desc,
            info: *mut quire_session_info,
            timeout_ns: u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub seq_import: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            desc: *const quire_import_desc,
            out: *mut quire_seq,
            info: *mut quire_session_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub seq_save_wait: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            seq: quire_seq,
            desc: *const quire_export_desc,
            path: *const ::core::ffi::c_char,
            info: *mut quire_session_info,
            timeout_ns: u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub seq_restore: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            desc: *const quire_import_desc,
            path: *const ::core::ffi::c_char,
            out: *mut quire_seq,
            info: *mut quire_session_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub tier_open: ::core::option::Option<
        unsafe extern "C" fn(
            instance: *mut quire_instance,
            desc: *const quire_tier_desc,
            out: *mut *mut quire_tier,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub tier_close_wait: ::core::option::Option<
        unsafe extern "C" fn(
            tier: *mut quire_tier,
            timeout_ns: u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub tier_get_info: ::core::option::Option<
        unsafe extern "C" fn(
            tier: *mut quire_tier,
            info: *mut quire_store_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub tier_get_stats: ::core::option::Option<
        unsafe extern "C" fn(
            tier: *mut quire_tier,
            stats: *mut quire_store_stats,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub tier_list: ::core::option::Option<
        unsafe extern "C" fn(
            tier: *mut quire_tier,
            cursor: *mut u64,
            records: *mut quire_store_record,
            capacity: u32,
            stride: u32,
            count: *mut u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub tier_request_wait: ::core::option::Option<
        unsafe extern "C" fn(
            tier: *mut quire_tier,
            request: *const quire_store_request,
            answer: *mut quire_store_answer,
            timeout_ns: u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_attach_tier: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            tier: *mut quire_tier,
            desc: *const quire_cache_tier_desc,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_detach_tier_wait: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            timeout_ns: u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_poll_tier: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            progress: *mut quire_cache_tier_progress,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_load_wait: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            timeout_ns: u64,
            progress: *mut quire_cache_tier_progress,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_cancel_load: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            seq: quire_seq,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_get_tier_stats: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            stats: *mut quire_cache_tier_stats,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub lease_create: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            desc: *const quire_lease_desc,
            out: *mut quire_lease,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub lease_end: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            lease: quire_lease,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub lease_get_info: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            lease: quire_lease,
            info: *mut quire_lease_info,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub lease_blocks: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            lease: quire_lease,
            group: u32,
            first: u32,
            out: *mut quire_lease_block,
            capacity: u32,
            stride: u32,
            count: *mut u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub lease_take: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            lease: quire_lease,
            group: u32,
            count: u32,
            ids: *mut i32,
            result: *mut quire_lease_result,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub lease_give: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            lease: quire_lease,
            group: u32,
            ids: *const i32,
            count: u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub lease_pin: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            lease: quire_lease,
            group: u32,
            ids: *const i32,
            count: u32,
            result: *mut quire_lease_result,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub lease_match: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            lease: quire_lease,
            tokens: *const quire_token,
            token_count: u32,
            how: u32,
            ids: *mut i32,
            result: *mut quire_lease_result,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub lease_publish: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            step: quire_step,
            lease: quire_lease,
            tokens: *const quire_token,
            token_count: u32,
            ids: *const i32,
            named: *mut i32,
            result: *mut quire_lease_result,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub lease_forget: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            lease: quire_lease,
            group: u32,
            ids: *const i32,
            count: u32,
            forgotten: *mut u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_evict: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            group: u32,
            count: u32,
            ids: *mut i32,
            evicted: *mut u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub handover_send: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            seq: quire_seq,
            desc: *const quire_handover_send_desc,
            out: *mut quire_handover,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub handover_layers: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            handover: quire_handover,
            step: quire_step,
            first_layer: u32,
            layer_count: u32,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub handover_read: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            handover: quire_handover,
            buffer: *mut ::core::ffi::c_void,
            capacity: u64,
            size_bytes: *mut u64,
            progress: *mut quire_handover_progress,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub handover_receive: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            desc: *const quire_handover_receive_desc,
            out: *mut quire_handover,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub handover_write: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            handover: quire_handover,
            bytes: *const ::core::ffi::c_void,
            size_bytes: u64,
            used: *mut u64,
            progress: *mut quire_handover_progress,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub handover_end: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            handover: quire_handover,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_report_loads: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            buffer: *mut ::core::ffi::c_void,
            capacity: u64,
            size_bytes: *mut u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub cache_take_report: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            bytes: *const ::core::ffi::c_void,
            size_bytes: u64,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub lease_find: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            lease: quire_lease,
            tokens: *const i64,
            token_count: u32,
            how: u32,
            ids: *mut i32,
            result: *mut quire_lease_result,
            error: *mut quire_error,
        ) -> quire_status,
    >,
    pub lease_insert: ::core::option::Option<
        unsafe extern "C" fn(
            cache: *mut quire_cache,
            lease: quire_lease,
            tokens: *const i64,
            slots: *const i64,
            token_count: u32,
            named: *mut i32,
            result: *mut quire_lease_result,
            error: *mut quire_error,
        ) -> quire_status,
    >,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of quire_api"][::core::mem::size_of::<quire_api>() - 896usize];
    ["Alignment of quire_api"][::core::mem::align_of::<quire_api>() - 8usize];
    [
        "Offset of field: quire_api::struct_size",
    ][::core::mem::offset_of!(quire_api, struct_size) - 0usize];
    [
        "Offset of field: quire_api::major",
    ][::core::mem::offset_of!(quire_api, major) - 4usize];
    [
        "Offset of field: quire_api::minor",
    ][::core::mem::offset_of!(quire_api, minor) - 8usize];
    [
        "Offset of field: quire_api::reserved0",
    ][::core::mem::offset_of!(quire_api, reserved0) - 12usize];
    [
        "Offset of field: quire_api::instance_create",
    ][::core::mem::offset_of!(quire_api, instance_create) - 16usize];
    [
        "Offset of field: quire_api::instance_destroy",
    ][::core::mem::offset_of!(quire_api, instance_destroy) - 24usize];
    [
        "Offset of field: quire_api::backend_count",
    ][::core::mem::offset_of!(quire_api, backend_count) - 32usize];
    [
        "Offset of field: quire_api::backend_get_info",
    ][::core::mem::offset_of!(quire_api, backend_get_info) - 40usize];
    [
        "Offset of field: quire_api::backend_load",
    ][::core::mem::offset_of!(quire_api, backend_load) - 48usize];
    [
        "Offset of field: quire_api::device_open",
    ][::core::mem::offset_of!(quire_api, device_open) - 56usize];
    [
        "Offset of field: quire_api::device_close",
    ][::core::mem::offset_of!(quire_api, device_close) - 64usize];
    [
        "Offset of field: quire_api::device_get_info",
    ][::core::mem::offset_of!(quire_api, device_get_info) - 72usize];
    [
        "Offset of field: quire_api::queue_create",
    ][::core::mem::offset_of!(quire_api, queue_create) - 80usize];
    [
        "Offset of field: quire_api::queue_destroy",
    ][::core::mem::offset_of!(quire_api, queue_destroy) - 88usize];
    [
        "Offset of field: quire_api::queue_sync",
    ][::core::mem::offset_of!(quire_api, queue_sync) - 96usize];
    [
        "Offset of field: quire_api::fence_create",
    ][::core::mem::offset_of!(quire_api, fence_create) - 104usize];
    [
        "Offset of field: quire_api::fence_destroy",
    ][::core::mem::offset_of!(quire_api, fence_destroy) - 112usize];
    [
        "Offset of field: quire_api::fence_read",
    ][::core::mem::offset_of!(quire_api, fence_read) - 120usize];
    [
        "Offset of field: quire_api::fence_signal",
    ][::core::mem::offset_of!(quire_api, fence_signal) - 128usize];
    [
        "Offset of field: quire_api::fence_wait",
    ][::core::mem::offset_of!(quire_api, fence_wait) - 136usize];
    [
        "Offset of field: quire_api::queue_signal",
    ][::core::mem::offset_of!(quire_api, queue_signal) - 144usize];
    [
        "Offset of field: quire_api::queue_after",
    ][::core::mem::offset_of!(quire_api, queue_after) - 152usize];
    [
        "Offset of field: quire_api::memory_create",
    ][::core::mem::offset_of!(quire_api, memory_create) - 160usize];
    [
        "Offset of field: quire_api::memory_destroy",
    ][::core::mem::offset_of!(quire_api, memory_destroy) - 168usize];
    [
        "Offset of field: quire_api::memory_get_info",
    ][::core::mem::offset_of!(quire_api, memory_get_info) - 176usize];
    [
        "Offset of field: quire_api::memory_copy",
    ][::core::mem::offset_of!(quire_api, memory_copy) - 184usize];
    [
        "Offset of field: quire_api::cache_create",
    ][::core::mem::offset_of!(quire_api, cache_create) - 192usize];
    [
        "Offset of field: quire_api::cache_destroy",
    ][::core::mem::offset_of!(quire_api, cache_destroy) - 200usize];
    [
        "Offset of field: quire_api::cache_get_info",
    ][::core::mem::offset_of!(quire_api, cache_get_info) - 208usize];
    [
        "Offset of field: quire_api::cache_get_pool",
    ][::core::mem::offset_of!(quire_api, cache_get_pool) - 216usize];
    [
        "Offset of field: quire_api::cache_get_stats",
    ][::core::mem::offset_of!(quire_api, cache_get_stats) - 224usize];
    [
        "Offset of field: quire_api::cache_reset",
    ][::core::mem::offset_of!(quire_api, cache_reset) - 232usize];
    [
        "Offset of field: quire_api::cache_check",
    ][::core::mem::offset_of!(quire_api, cache_check) - 240usize];
    [
        "Offset of field: quire_api::namespace_create",
    ][::core::mem::offset_of!(quire_api, namespace_create) - 248usize];
    [
        "Offset of field: quire_api::namespace_destroy",
    ][::core::mem::offset_of!(quire_api, namespace_destroy) - 256usize];
    [
        "Offset of field: quire_api::namespace_get_info",
    ][::core::mem::offset_of!(quire_api, namespace_get_info) - 264usize];
    [
        "Offset of field: quire_api::seq_create",
    ][::core::mem::offset_of!(quire_api, seq_create) - 272usize];
    [
        "Offset of field: quire_api::seq_end",
    ][::core::mem::offset_of!(quire_api, seq_end) - 280usize];
    [
        "Offset of field: quire_api::seq_fork",
    ][::core::mem::offset_of!(quire_api, seq_fork) - 288usize];
    [
        "Offset of field: quire_api::seq_truncate",
    ][::core::mem::offset_of!(quire_api, seq_truncate) - 296usize];
    [
        "Offset of field: quire_api::seq_accept",
    ][::core::mem::offset_of!(quire_api, seq_accept) - 304usize];
    [
        "Offset of field: quire_api::seq_set_tokens",
    ][::core::mem::offset_of!(quire_api, seq_set_tokens) - 312usize];
    [
        "Offset of field: quire_api::seq_get_info",
    ][::core::mem::offset_of!(quire_api, seq_get_info) - 320usize];
    [
        "Offset of field: quire_api::prefix_probe",
    ][::core::mem::offset_of!(quire_api, prefix_probe) - 328usize];
    [
        "Offset of field: quire_api::step_begin",
    ][::core::mem::offset_of!(quire_api, step_begin) - 336usize];
    [
        "Offset of field: quire_api::step_add",
    ][::core::mem::offset_of!(quire_api, step_add) - 344usize];
    [
        "Offset of field: quire_api::step_drop",
    ][::core::mem::offset_of!(quire_api, step_drop) - 352usize];
    [
        "Offset of field: quire_api::step_preempt",
    ][::core::mem::offset_of!(quire_api, step_preempt) - 360usize];
    [
        "Offset of field: quire_api::step_preempted",
    ][::core::mem::offset_of!(quire_api, step_preempted) - 368usize];
    [
        "Offset of field: quire_api::step_abort",
    ][::core::mem::offset_of!(quire_api, step_abort) - 376usize];
    [
        "Offset of field: quire_api::step_commit",
    ][::core::mem::offset_of!(quire_api, step_commit) - 384usize];
    [
        "Offset of field: quire_api::step_finish",
    ][::core::mem::offset_of!(quire_api, step_finish) - 392usize];
    [
        "Offset of field: quire_api::step_blocks",
    ][::core::mem::offset_of!(quire_api, step_blocks) - 400usize];
    [
        "Offset of field: quire_api::step_copies",
    ][::core::mem::offset_of!(quire_api, step_copies) - 408usize];
    [
        "Offset of field: quire_api::batch_create",
    ][::core::mem::offset_of!(quire_api, batch_create) - 416usize];
    [
        "Offset of field: quire_api::batch_destroy",
    ][::core::mem::offset_of!(quire_api, batch_destroy) - 424usize];
    [
        "Offset of field: quire_api::batch_get_views",
    ][::core::mem::offset_of!(quire_api, batch_get_views) - 432usize];
    [
        "Offset of field: quire_api::kv_write",
    ][::core::mem::offset_of!(quire_api, kv_write) - 440usize];
    [
        "Offset of field: quire_api::attend",
    ][::core::mem::offset_of!(quire_api, attend) - 448usize];
    [
        "Offset of field: quire_api::size_estimate",
    ][::core::mem::offset_of!(quire_api, size_estimate) - 456usize];
    [
        "Offset of field: quire_api::seq_accept_path",
    ][::core::mem::offset_of!(quire_api, seq_accept_path) - 464usize];
    [
        "Offset of field: quire_api::attention_merge",
    ][::core::mem::offset_of!(quire_api, attention_merge) - 472usize];
    [
        "Offset of field: quire_api::step_log",
    ][::core::mem::offset_of!(quire_api, step_log) - 480usize];
    [
        "Offset of field: quire_api::log_apply",
    ][::core::mem::offset_of!(quire_api, log_apply) - 488usize];
    [
        "Offset of field: quire_api::cache_save_calibration_wait",
    ][::core::mem::offset_of!(quire_api, cache_save_calibration_wait) - 496usize];
    [
        "Offset of field: quire_api::calibration_merge",
    ][::core::mem::offset_of!(quire_api, calibration_merge) - 504usize];
    [
        "Offset of field: quire_api::calibration_get_info",
    ][::core::mem::offset_of!(quire_api, calibration_get_info) - 512usize];
    [
        "Offset of field: quire_api::calibration_get_layer",
    ][::core::mem::offset_of!(quire_api, calibration_get_layer) - 520usize];
    [
        "Offset of field: quire_api::cache_migrate",
    ][::core::mem::offset_of!(quire_api, cache_migrate) - 528usize];
    [
        "Offset of field: quire_api::cache_migrate_wait",
    ][::core::mem::offset_of!(quire_api, cache_migrate_wait) - 536usize];
    [
        "Offset of field: quire_api::queue_signal_native",
    ][::core::mem::offset_of!(quire_api, queue_signal_native) - 544usize];
    [
        "Offset of field: quire_api::queue_after_native",
    ][::core::mem::offset_of!(quire_api, queue_after_native) - 552usize];
    [
        "Offset of field: quire_api::cache_dump",
    ][::core::mem::offset_of!(quire_api, cache_dump) - 560usize];
    [
        "Offset of field: quire_api::cache_abandon",
    ][::core::mem::offset_of!(quire_api, cache_abandon) - 568usize];
    [
        "Offset of field: quire_api::queue_abandon",
    ][::core::mem::offset_of!(quire_api, queue_abandon) - 576usize];
    [
        "Offset of field: quire_api::device_abandon",
    ][::core::mem::offset_of!(quire_api, device_abandon) - 584usize];
    [
        "Offset of field: quire_api::cache_events",
    ][::core::mem::offset_of!(quire_api, cache_events) - 592usize];
    [
        "Offset of field: quire_api::seq_export_wait",
    ][::core::mem::offset_of!(quire_api, seq_export_wait) - 600usize];
    [
        "Offset of field: quire_api::seq_import",
    ][::core::mem::offset_of!(quire_api, seq_import) - 608usize];
    [
        "Offset of field: quire_api::seq_save_wait",
    ][::core::mem::offset_of!(quire_api, seq_save_wait) - 616usize];
    [
        "Offset of field: quire_api::seq_restore",
    ][::core::mem::offset_of!(quire_api, seq_restore) - 624usize];
    [
        "Offset of field: quire_api::tier_open",
    ][::core::mem::offset_of!(quire_api, tier_open) - 632usize];
    [
        "Offset of field: quire_api::tier_close_wait",
    ][::core::mem::offset_of!(quire_api, tier_close_wait) - 640usize];
    [
        "Offset of field: quire_api::tier_get_info",
    ][::core::mem::offset_of!(quire_api, tier_get_info) - 648usize];
    [
        "Offset of field: quire_api::tier_get_stats",
    ][::core::mem::offset_of!(quire_api, tier_get_stats) - 656usize];
    [
        "Offset of field: quire_api::tier_list",
    ][::core::mem::offset_of!(quire_api, tier_list) - 664usize];
    [
        "Offset of field: quire_api::tier_request_wait",
    ][::core::mem::offset_of!(quire_api, tier_request_wait) - 672usize];
    [
        "Offset of field: quire_api::cache_attach_tier",
    ][::core::mem::offset_of!(quire_api, cache_attach_tier) - 680usize];
    [
        "Offset of field: quire_api::cache_detach_tier_wait",
    ][::core::mem::offset_of!(quire_api, cache_detach_tier_wait) - 688usize];
    [
        "Offset of field: quire_api::cache_poll_tier",
    ][::core::mem::offset_of!(quire_api, cache_poll_tier) - 696usize];
    [
        "Offset of field: quire_api::cache_load_wait",
    ][::core::mem::offset_of!(quire_api, cache_load_wait) - 704usize];
    [
        "Offset of field: quire_api::cache_cancel_load",
    ][::core::mem::offset_of!(quire_api, cache_cancel_load) - 712usize];
    [
        "Offset of field: quire_api::cache_get_tier_stats",
    ][::core::mem::offset_of!(quire_api, cache_get_tier_stats) - 720usize];
    [
        "Offset of field: quire_api::lease_create",
    ][::core::mem::offset_of!(quire_api, lease_create) - 728usize];
    [
        "Offset of field: quire_api::lease_end",
    ][::core::mem::offset_of!(quire_api, lease_end) - 736usize];
    [
        "Offset of field: quire_api::lease_get_info",
    ][::core::mem::offset_of!(quire_api, lease_get_info) - 744usize];
    [
        "Offset of field: quire_api::lease_blocks",
    ][::core::mem::offset_of!(quire_api, lease_blocks) - 752usize];
    [
        "Offset of field: quire_api::lease_take",
    ][::core::mem::offset_of!(quire_api, lease_take) - 760usize];
    [
        "Offset of field: quire_api::lease_give",
    ][::core::mem::offset_of!(quire_api, lease_give) - 768usize];
    [
        "Offset of field: quire_api::lease_pin",
    ][::core::mem::offset_of!(quire_api, lease_pin) - 776usize];
    [
        "Offset of field: quire_api::lease_match",
    ][::core::mem::offset_of!(quire_api, lease_match) - 784usize];
    [
        "Offset of field: quire_api::lease_publish",
    ][::core::mem::offset_of!(quire_api, lease_publish) - 792usize];
    [
        "Offset of field: quire_api::lease_forget",
    ][::core::mem::offset_of!(quire_api, lease_forget) - 800usize];
    [
        "Offset of field: quire_api::cache_evict",
    ][::core::mem::offset_of!(quire_api, cache_evict) - 808usize];
    [
        "Offset of field: quire_api::handover_send",
    ][::core::mem::offset_of!(quire_api, handover_send) - 816usize];
    [
        "Offset of field: quire_api::handover_layers",
    ][::core::mem::offset_of!(quire_api, handover_layers) - 824usize];
    [
        "Offset of field: quire_api::handover_read",
    ][::core::mem::offset_of!(quire_api, handover_read) - 832usize];
    [
        "Offset of field: quire_api::handover_receive",
    ][::core::mem::offset_of!(quire_api, handover_receive) - 840usize];
    [
        "Offset of field: quire_api::handover_write",
    ][::core::mem::offset_of!(quire_api, handover_write) - 848usize];
    [
        "Offset of field: quire_api::handover_end",
    ][::core::mem::offset_of!(quire_api, handover_end) - 856usize];
    [
        "Offset of field: quire_api::cache_report_loads",
    ][::core::mem::offset_of!(quire_api, cache_report_loads) - 864usize];
    [
        "Offset of field: quire_api::cache_take_report",
    ][::core::mem::offset_of!(quire_api, cache_take_report) - 872usize];
    [
        "Offset of field: quire_api::lease_find",
    ][::core::mem::offset_of!(quire_api, lease_find) - 880usize];
    [
        "Offset of field: quire_api::lease_insert",
    ][::core::mem::offset_of!(quire_api, lease_insert) - 888usize];
};
pub type quire_get_api_fn = ::core::option::Option<
    unsafe extern "C" fn(
        major: u32,
        min_minor: u32,
        out: *mut *const quire_api,
        error: *mut quire_error,
    ) -> quire_status,
>;
pub const QUIRE_VULKAN_SHADER_INT64: _bindgen_ty_48 = 1;
pub const QUIRE_VULKAN_SHADER_INT16: _bindgen_ty_48 = 2;
pub const QUIRE_VULKAN_STORAGE_16BIT: _bindgen_ty_48 = 4;
pub const QUIRE_VULKAN_STORAGE_8BIT: _bindgen_ty_48 = 8;
pub const QUIRE_VULKAN_SHADER_INT8: _bindgen_ty_48 = 16;
pub const QUIRE_VULKAN_BUFFER_DEVICE_ADDRESS: _bindgen_ty_48 = 32;
pub const QUIRE_VULKAN_TIMELINE_SEMAPHORE: _bindgen_ty_48 = 64;
pub const QUIRE_VULKAN_SCALAR_BLOCK_LAYOUT: _bindgen_ty_48 = 128;
pub const QUIRE_VULKAN_SYNCHRONIZATION2: _bindgen_ty_48 = 256;
pub const QUIRE_VULKAN_MAINTENANCE4: _bindgen_ty_48 = 512;
pub const QUIRE_VULKAN_NEEDED_FEATURES: _bindgen_ty_48 = 1023;
pub const QUIRE_VULKAN_EXTERNAL_MEMORY_HOST: _bindgen_ty_48 = 1024;
pub type _bindgen_ty_48 = u32;
pub type quire_vulkan_function = ::core::option::Option<unsafe extern "C" fn()>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct quire_vulkan_device {
    pub struct_type: u32,
    pub struct_size: u32,
    pub next: *const quire_chain,
    pub instance: *mut ::core::ffi::c_void,
    pub physical_device: *mut ::core::ffi::c_void,
    pub device: *mut ::core::ffi::c_void,
    pub get_instance_proc_addr: quire_vulkan_function,
    pub queue: *mut ::core::ffi::c_void,
    pub queue_family: u32,
    pub queue_index: u32,
    pub transfer_queue: *mut ::core::ffi::c_void,
    pub transfer_family: u32,
    pub transfer_index: u32,
    pub features: u64,
    pub lock: ::core::option::Option<
        unsafe extern "C" fn(
            user: *mut ::core::ffi::c_void,
            queue: *mut ::core::ffi::c_void,
        ),
    >,
    pub unlock: ::core::option::Option<
        unsafe extern "C" fn(
            user: *mut ::core::ffi::c_void,
            queue: *mut ::core::ffi::c_void,
        ),
    >,
    pub lock_user: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of quire_vulkan_device",
    ][::core::mem::size_of::<quire_vulkan_device>() - 112usize];
    [
        "Alignment of quire_vulkan_device",
    ][::core::mem::align_of::<quire_vulkan_device>() - 8usize];
    [
        "Offset of field: quire_vulkan_device::struct_type",
    ][::core::mem::offset_of!(quire_vulkan_device, struct_type) - 0usize];
    [
        "Offset of field: quire_vulkan_device::struct_size",
    ][::core::mem::offset_of!(quire_vulkan_device, struct_size) - 4usize];
    [
        "Offset of field: quire_vulkan_device::next",
    ][::core::mem::offset_of!(quire_vulkan_device, next) - 8usize];
    [
        "Offset of field: quire_vulkan_device::instance",
    ][::core::mem::offset_of!(quire_vulkan_device, instance) - 16usize];
    [
        "Offset of field: quire_vulkan_device::physical_device",
    ][::core::mem::offset_of!(quire_vulkan_device, physical_device) - 24usize];
    [
        "Offset of field: quire_vulkan_device::device",
    ][::core::mem::offset_of!(quire_vulkan_device, device) - 32usize];
    [
        "Offset of field: quire_vulkan_device::get_instance_proc_addr",
    ][::core::mem::offset_of!(quire_vulkan_device, get_instance_proc_addr) - 40usize];
    [
        "Offset of field: quire_vulkan_device::queue",
    ][::core::mem::offset_of!(quire_vulkan_device, queue) - 48usize];
    [
        "Offset of field: quire_vulkan_device::queue_family",
    ][::core::mem::offset_of!(quire_vulkan_device, queue_family) - 56usize];
    [
        "Offset of field: quire_vulkan_device::queue_index",
    ][::core::mem::offset_of!(quire_vulkan_device, queue_index) - 60usize];
    [
        "Offset of field: quire_vulkan_device::transfer_queue",
    ][::core::mem::offset_of!(quire_vulkan_device, transfer_queue) - 64usize];
    [
        "Offset of field: quire_vulkan_device::transfer_family",
    ][::core::mem::offset_of!(quire_vulkan_device, transfer_family) - 72usize];
    [
        "Offset of field: quire_vulkan_device::transfer_index",
    ][::core::mem::offset_of!(quire_vulkan_device, transfer_index) - 76usize];
    [
        "Offset of field: quire_vulkan_device::features",
    ][::core::mem::offset_of!(quire_vulkan_device, features) - 80usize];
    [
        "Offset of field: quire_vulkan_device::lock",
    ][::core::mem::offset_of!(quire_vulkan_device, lock) - 88usize];
    [
        "Offset of field: quire_vulkan_device::unlock",
    ][::core::mem::offset_of!(quire_vulkan_device, unlock) - 96usize];
    [
        "Offset of field: quire_vulkan_device::lock_user",
    ][::core::mem::offset_of!(quire_vulkan_device, lock_user) - 104usize];
};
impl Default for quire_vulkan_device {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
