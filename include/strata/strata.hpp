/* SPDX-License-Identifier: Apache-2.0
 *
 * Strata from C++17: handles that destroy themselves, errors as exceptions, options by name. Everything else is the C API.
 *
 *     strata::device device;
 *     strata::call(strata_device_open, "host", nullptr, device.out());
 *     strata::model model;
 *     strata::call(strata_model_create, strata::shape({28, 28}), model.out());
 *     strata_model_add_dense(model, strata::with<strata_dense_options>([](auto &o) { o.units = 10; }));
 *     strata::call(strata_model_compile, model, device, strata::with<strata_compile_options>([](auto &o) { o.seed = 1; }));
 *
 * Handles are destroyed in the reverse order of their declaration, which is the order that the C API asks for: declare a device
 * before what is made on it. */
#ifndef STRATA_STRATA_HPP
#define STRATA_STRATA_HPP

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "strata/strata.h"

namespace strata {

/* The exception of a failed call: what() is the message, status() says what the caller can do about it. */
class error : public std::runtime_error {
   public:
    explicit error(const strata_error &from) : std::runtime_error(from.message), status_(from.status) {}
    strata_status status() const noexcept { return status_; }

   private:
    strata_status status_;
};

namespace detail {
/* An argument for a parameter of type P: the address of a T where P points to T. */
template <class P, class A>
decltype(auto) pass(A &&argument) {
    using pointed = std::remove_cv_t<std::remove_pointer_t<P>>;
    if constexpr (std::is_pointer_v<P> && std::is_same_v<pointed, std::remove_cv_t<std::remove_reference_t<A>>>)
        return P(&argument);
    else
        return std::forward<A>(argument);
}
template <class... P, size_t... I, class Arguments>
strata_status call(strata_status (*function)(P...), std::index_sequence<I...>, Arguments &&arguments, strata_error *failure) {
    using parameters = std::tuple<P...>;
    return function(pass<std::tuple_element_t<I, parameters>>(std::get<I>(std::forward<Arguments>(arguments)))..., failure);
}
}  // namespace detail

/* Calls a function of the C API with these arguments, and with a strata_error behind them; throws strata::error if it fails.
 * Handles stand for their pointers, and a struct for a pointer to it. */
template <class... P, class... A>
void call(strata_status (*function)(P...), A &&...arguments) {
    static_assert(sizeof...(P) == sizeof...(A) + 1, "the arguments of the C function, without the strata_error");
    strata_error failure{};
    if (detail::call(function, std::index_sequence_for<A...>{}, std::forward_as_tuple(std::forward<A>(arguments)...), &failure))
        throw error(failure);
}

/* A struct of options in which all fields are zero, except for those that `set` sets. */
template <class Options, class Set>
Options with(Set &&set) {
    Options options{};
    set(options);
    return options;
}

/* Throws strata::error for more than STRATA_MAX_RANK dimensions. */
inline strata_shape shape(std::initializer_list<int64_t> dims) {
    strata_shape made{};
    if (dims.size() > STRATA_MAX_RANK) {
        strata_error failure{};
        strata_fail(&failure, STRATA_INVALID, "shape: %zu dimensions; there may be %d", dims.size(), int(STRATA_MAX_RANK));
        throw error(failure);
    }
    for (int64_t dim : dims) made.dims[made.rank++] = dim;
    return made;
}

/* Owns a T, which it destroys; it can be moved and not copied. */
template <class T, void (*destroy)(T *)>
class handle {
   public:
    handle() = default;
    explicit handle(T *owned) noexcept : pointer_(owned) {}
    handle(handle &&other) noexcept : pointer_(other.release()) {}
    handle &operator=(handle &&other) noexcept {
        if (this != &other) reset(other.release());
        return *this;
    }
    ~handle() { destroy(pointer_); }

    operator T *() const noexcept { return pointer_; }
    T *get() const noexcept { return pointer_; }
    /* For a call that creates the object. Destroys the object that this handle owned. */
    T **out() noexcept {
        reset(nullptr);
        return &pointer_;
    }
    /* For a call that takes the object: returns it, and the handle does not own it any more. */
    T *release() noexcept { return std::exchange(pointer_, nullptr); }
    void reset(T *owned) noexcept { destroy(std::exchange(pointer_, owned)); }

   private:
    T *pointer_ = nullptr;
};

using communicator = handle<strata_communicator, strata_communicator_destroy>;
using csv = handle<strata_csv, strata_csv_destroy>;
using dataset = handle<strata_dataset, strata_dataset_destroy>;
using device = handle<strata_device, strata_device_close>;
using distributed_batches = handle<strata_distributed_batches, strata_distributed_batches_destroy>;
using distributed_optimizer = handle<strata_distributed_optimizer, strata_distributed_optimizer_destroy>;
using distributed_variable = handle<strata_distributed_variable, strata_distributed_destroy>;
using executable = handle<strata_executable, strata_executable_destroy>;
using function = handle<strata_function, strata_function_destroy>;
using graph = handle<strata_graph, strata_graph_destroy>;
using iterator = handle<strata_iterator, strata_iterator_destroy>;
using model = handle<strata_model, strata_model_destroy>;
using strategy = handle<strata_strategy, strata_strategy_destroy>;
using texts = handle<strata_texts, strata_texts_destroy>;
using tokenizer = handle<strata_tokenizer, strata_tokenizer_destroy>;
using variable = handle<strata_variable, strata_variable_destroy>;

/* An array that owns host memory for its elements and frees it. */
class array : public strata_array {
   public:
    array() noexcept : strata_array{} {}
    array(strata_dtype of, strata_shape with_shape) : strata_array{} { call(strata_array_create, of, with_shape, this); }
    array(array &&other) noexcept : strata_array(other) { static_cast<strata_array &>(other) = strata_array{}; }
    array &operator=(array &&other) noexcept {
        std::swap(static_cast<strata_array &>(*this), static_cast<strata_array &>(other));
        return *this;
    }
    ~array() { strata_array_finish(this); }
    /* The elements, as the C++ type of their dtype. */
    template <class T>
    T *elements() const noexcept {
        return static_cast<T *>(data);
    }
};

}  // namespace strata

#endif
