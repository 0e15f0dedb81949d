// SPDX-License-Identifier: Apache-2.0
//
// list: a list whose links are in its elements, so that linking never allocates.
//
// Threads: none.
#pragma once

namespace quire::disk {

template <typename Element>
struct Links {
    Element *previous = nullptr;
    Element *next = nullptr;
};

// Which::of(element) returns its links. REQUIRES: an element is in one such list at a time.
template <typename Element, typename Which>
class List {
 public:
    bool is_empty() const { return first_ == nullptr; }
    Element *first() const { return first_; }
    static Element *after(Element *element) { return Which::of(element).next; }

    void push_back(Element *element) {
        Which::of(element) = {last_, nullptr};
        (last_ == nullptr ? first_ : Which::of(last_).next) = element;
        last_ = element;
    }
    void push_front(Element *element) {
        Which::of(element) = {nullptr, first_};
        (first_ == nullptr ? last_ : Which::of(first_).previous) = element;
        first_ = element;
    }
    void remove(Element *element) {
        auto [previous, next] = Which::of(element);
        (previous == nullptr ? first_ : Which::of(previous).next) = next;
        (next == nullptr ? last_ : Which::of(next).previous) = previous;
        Which::of(element) = {};
    }
    Element *pop() {
        Element *element = first_;
        if (element != nullptr) remove(element);
        return element;
    }

 private:
    Element *first_ = nullptr;
    Element *last_ = nullptr;
};

}  // namespace quire::disk
