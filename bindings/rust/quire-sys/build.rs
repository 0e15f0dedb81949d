// SPDX-License-Identifier: Apache-2.0

//! With `buildtime-bindgen`: makes the declarations from the headers in QUIRE_INCLUDE_DIR, or else
//! from those of the repository that holds this crate.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "buildtime-bindgen")]
    generate();
}

#[cfg(feature = "buildtime-bindgen")]
fn generate() {
    use std::{env, path::PathBuf};

    println!("cargo:rerun-if-env-changed=QUIRE_INCLUDE_DIR");
    let include = env::var_os("QUIRE_INCLUDE_DIR").map_or_else(
        || PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../../include"),
        PathBuf::from,
    );
    let start = include.join("quire/quire.h");
    assert!(
        start.is_file(),
        "{} not found: set QUIRE_INCLUDE_DIR to the folder that holds quire/quire.h",
        start.display()
    );
    println!("cargo:rerun-if-changed={}", include.join("quire").display());
    bindgen::Builder::default()
        .header(start.to_str().expect("the path of the headers is UTF-8"))
        .header(include.join("quire/vulkan.h").to_str().unwrap())
        .clang_arg(format!("-I{}", include.display()))
        .allowlist_type("quire_.*")
        .allowlist_var("QUIRE_.*")
        // One symbol is looked up at run time; none is linked.
        .blocklist_function(".*")
        // bindgen takes it for a negative int.
        .blocklist_var("QUIRE_FENCE_FAILED")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .translate_enum_integer_types(true)
        .derive_default(true)
        .layout_tests(true)
        .generate_comments(false)
        .use_core()
        .merge_extern_blocks(true)
        .raw_line(
            "/* Made by bindgen from include/quire: cargo build --features buildtime-bindgen. */",
        )
        .formatter(bindgen::Formatter::Prettyplease)
        .disable_header_comment()
        .generate()
        .expect("bindgen cannot read the headers")
        .write_to_file(PathBuf::from(env::var("OUT_DIR").unwrap()).join("bindings.rs"))
        .expect("the declarations cannot be written");
}
