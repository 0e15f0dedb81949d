// SPDX-License-Identifier: Apache-2.0
//
// unwind: what the static unwinder needs from the C library, provided for every glibc from 2.34 on.
//
// Shipped objects link libgcc_eh, so that they need only libc and libm. Where glibc has
// _dl_find_object (2.35), libgcc_eh is built to call it, and the object would not load on 2.34. So
// this definition replaces it inside the object; it is hidden, so the process keeps its own. It
// answers from dl_iterate_phdr, which every glibc has; that is slower, but only exceptions come
// here.
//
// Invariants: an answer names the unwind table of the loaded object that holds the address, as
// glibc's manual documents struct dl_find_object; -1 when no object with a table does.
//
// Threads: any; dl_iterate_phdr takes the dynamic linker's own lock.

#include <dlfcn.h>
#include <link.h>

#ifdef DLFO_STRUCT_HAS_EH_DBASE

#if DLFO_STRUCT_HAS_EH_DBASE || DLFO_STRUCT_HAS_EH_COUNT
#error "this machine's unwinder wants more than the table's address: fill it in here"
#endif

namespace {

struct Search {
    ElfW(Addr) address;
    dl_find_object *result;
    bool found;
};

int look_at_object(dl_phdr_info *info, size_t, void *data) {
    auto *search = static_cast<Search *>(data);
    const ElfW(Phdr) *table = nullptr;
    ElfW(Addr) begin = ~ElfW(Addr){0}, end = 0;
    bool inside = false;
    for (ElfW(Half) i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) &segment = info->dlpi_phdr[i];
        if (segment.p_type == DLFO_EH_SEGMENT_TYPE) table = &segment;
        if (segment.p_type != PT_LOAD) continue;
        ElfW(Addr) first = info->dlpi_addr + segment.p_vaddr, last = first + segment.p_memsz;
        begin = first < begin ? first : begin;
        end = last > end ? last : end;
        inside = inside || (search->address >= first && search->address < last);
    }
    if (!inside) return 0;
    if (table != nullptr) {
        *search->result = dl_find_object{};
        search->result->dlfo_map_start = reinterpret_cast<void *>(begin);
        search->result->dlfo_map_end = reinterpret_cast<void *>(end);
        search->result->dlfo_eh_frame = reinterpret_cast<void *>(info->dlpi_addr + table->p_vaddr);
        search->found = true;
    }
    return 1;
}

}  // namespace

extern "C" [[gnu::visibility("hidden")]] int _dl_find_object(void *address,
                                                             dl_find_object *result) noexcept {
    Search search{reinterpret_cast<ElfW(Addr)>(address), result, false};
    dl_iterate_phdr(look_at_object, &search);
    return search.found ? 0 : -1;
}

#endif
