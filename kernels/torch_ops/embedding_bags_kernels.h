// Vector code of embedding_bags.cpp; see each_isa.h for how it is included.

inline constexpr int kVectors = 8;    // of a row that are computed together
inline constexpr int64_t kAhead = 8;  // rows that are fetched in advance
inline constexpr int64_t kCacheLine = 64;

// The type that elements of T are summed in.
template <class T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Rows of tables are too far apart for the hardware to fetch in advance.
inline void fetch_row(const void* row, int64_t bytes) {
  for (int64_t offset = 0; offset < bytes; offset += kCacheLine)
    __builtin_prefetch(static_cast<const char*>(row) + offset);
}

// ---- forward ----

template <class T, int N, class Index>
inline void pool_block(const T* weight, const Index* indices, int64_t count, int64_t width, Sum<T> divisor,
                       T* result) {
  VectorOf<T> acc[N];
  for (int v = 0; v < N; ++v) acc[v] = VectorOf<T>{};
  for (int64_t i = 0; i < count; ++i) {
    const T* row = weight + indices[i] * width;
    for (int v = 0; v < N; ++v) acc[v] += load(row + v * kLanes<T>);
  }
  if (divisor != 1) {
    for (int v = 0; v < N; ++v) acc[v] /= divisor;
  }
  for (int v = 0; v < N; ++v) store(result + v * kLanes<T>, acc[v]);
}

template <class T, class Index>
void pool(BagOp& op, const BagPiece& piece) {
  const BagTable& table = op.tables[piece.table];
  const auto* weight = static_cast<const T*>(table.weight);
  const auto* indices = static_cast<const Index*>(table.indices);
  const int64_t width = op.width, bytes = width * static_cast<int64_t>(sizeof(T));
  for (int64_t bag = piece.begin; bag < piece.end; ++bag) {
    const auto [begin, end] = bag_range<Index>(table, bag);
    bool valid = begin <= end;
    for (int64_t i = begin; i < end; ++i) {
      valid &= indices[i] >= 0 && indices[i] < table.rows;
      if (i + kAhead < table.index_count) fetch_row(weight + indices[i + kAhead] * width, bytes);
    }
    if (!valid) {
      op.faulty = piece.table;
      return;
    }
    const int64_t count = end - begin;
    const Sum<T> divisor = op.mean && count > 0 ? static_cast<Sum<T>>(count) : 1;
    T* result = static_cast<T*>(table.result) + bag * table.result_stride;
    int64_t column = 0;
    for (; column + kVectors * kLanes<T> <= width; column += kVectors * kLanes<T>)
      pool_block<T, kVectors>(weight + column, indices + begin, count, width, divisor, result + column);
    for (; column + kLanes<T> <= width; column += kLanes<T>)
      pool_block<T, 1>(weight + column, indices + begin, count, width, divisor, result + column);
    for (; column < width; ++column) {
      Sum<T> sum = 0;
      for (int64_t i = begin; i < end; ++i) sum += static_cast<Sum<T>>(weight[indices[i] * width + column]);
      result[column] = static_cast<T>(sum / divisor);
    }
  }
}

// ---- backward ----

// The weight after a step; Value is a vector or a number.
template <BagRule rule, class Value, class Number>
inline Value stepped(Value weight, Value grad, Value& state, Number lr, Number weight_decay, Number eps) {
  if constexpr (rule == BagRule::kGradient) return grad;
  if constexpr (rule == BagRule::kSgd) return weight - lr * (grad + weight_decay * weight);
  state += grad * grad;
  return weight - lr * grad / (square_root(state) + eps);
}

inline Floats load_split(const c10::BFloat16* top, const uint16_t* trail) {
  return reinterpret_cast<Floats>((__builtin_convertvector(load_as<Shorts>(top), Words) << 16) |
                                  __builtin_convertvector(load_as<Shorts>(trail), Words));
}
inline void store_split(c10::BFloat16* top, uint16_t* trail, Floats value) {
  const Words bits = reinterpret_cast<Words>(value);
  store_as(top, __builtin_convertvector(bits >> 16, Shorts));
  store_as(trail, __builtin_convertvector(bits, Shorts));
}

// One row of a table, and the gradients that it gets.
template <class T>
struct RowUpdate {
  const BagOp& op;
  T* weight;
  uint16_t* trail;  // null unless the weight is split
  Sum<T>* state;    // null unless the rule has one
  const T* grads;
  const Lookup* lookups;
  const Sum<T>* scales;  // of the gradient of each lookup
  int64_t count;
};

template <class T, BagRule rule, int N>
inline void update_block(const RowUpdate<T>& row, int64_t column) {
  constexpr int64_t kWidth = kLanes<T>;
  VectorOf<T> grad[N];
  for (int v = 0; v < N; ++v) grad[v] = VectorOf<T>{};
  for (int64_t i = 0; i < row.count; ++i) {
    const T* from = row.grads + row.lookups[i].bag * row.op.width + column;
    for (int v = 0; v < N; ++v) grad[v] += row.scales[i] * load(from + v * kWidth);
  }
  const auto lr = static_cast<Sum<T>>(row.op.lr), decay = static_cast<Sum<T>>(row.op.weight_decay),
             eps = static_cast<Sum<T>>(row.op.eps);
  for (int v = 0; v < N; ++v) {
    const int64_t at = column + v * kWidth;
    VectorOf<T> state = {}, weight = {};
    if constexpr (rule == BagRule::kAdagrad) state = load(row.state + at);
    if constexpr (rule != BagRule::kGradient) {
      if constexpr (std::is_same_v<T, c10::BFloat16>)
        weight = row.trail ? load_split(row.weight + at, row.trail + at) : load(row.weight + at);
      else
        weight = load(row.weight + at);
    }
    weight = stepped<rule>(weight, grad[v], state, lr, decay, eps);
    if constexpr (rule == BagRule::kAdagrad) store(row.state + at, state);
    if constexpr (std::is_same_v<T, c10::BFloat16>) {
      if (row.trail) {
        store_split(row.weight + at, row.trail + at, weight);
        continue;
      }
    }
    store(row.weight + at, weight);
  }
}

template <class T, BagRule rule>
inline void update_element(const RowUpdate<T>& row, int64_t at) {
  using Number = Sum<T>;
  Number grad = 0, state = 0, weight = 0;
  for (int64_t i = 0; i < row.count; ++i)
    grad += row.scales[i] * static_cast<Number>(row.grads[row.lookups[i].bag * row.op.width + at]);
  if constexpr (rule == BagRule::kAdagrad) state = row.state[at];
  uint32_t bits = 0;
  if (row.trail) {
    uint16_t top;
    std::memcpy(&top, static_cast<const void*>(row.weight + at), sizeof top);
    bits = static_cast<uint32_t>(top) << 16 | row.trail[at];
    float whole;
    std::memcpy(&whole, &bits, sizeof whole);
    weight = whole;
  } else if constexpr (rule != BagRule::kGradient) {
    weight = static_cast<Number>(row.weight[at]);
  }
  weight = stepped<rule>(weight, grad, state, static_cast<Number>(row.op.lr),
                         static_cast<Number>(row.op.weight_decay), static_cast<Number>(row.op.eps));
  if constexpr (rule == BagRule::kAdagrad) row.state[at] = state;
  if (!row.trail) {
    row.weight[at] = static_cast<T>(weight);
    return;
  }
  const auto whole = static_cast<float>(weight);
  std::memcpy(&bits, &whole, sizeof bits);
  const auto top = static_cast<uint16_t>(bits >> 16);
  std::memcpy(static_cast<void*>(row.weight + at), &top, sizeof top);
  row.trail[at] = static_cast<uint16_t>(bits);
}

template <class T, class Index, BagRule rule>
void update(BagOp& op, const BagPiece& piece, Scratch& scratch) {
  BagTable& table = op.tables[piece.table];
  const int64_t width = op.width, row_bytes = width * static_cast<int64_t>(sizeof(T));
  auto* lookups = scratch.get<Lookup>(0, table.index_count);
  const int64_t count = collect_lookups<Index>(table, piece.begin, piece.end, lookups);
  if (count < 0) {
    op.faulty = piece.table;
    return;
  }
  lookups = sort_lookups(lookups, scratch.get<Lookup>(1, count), count, table.rows);
  auto* scales = scratch.get<Sum<T>>(2, count);
  if (!op.mean) std::fill_n(scales, count, Sum<T>(1));
  for (int64_t i = 0; op.mean && i < count; ++i) {
    const auto [begin, end] = bag_range<Index>(table, lookups[i].bag);
    scales[i] = Sum<T>(1) / static_cast<Sum<T>>(end - begin);
  }
  auto* weight = static_cast<T*>(table.weight);
  const auto* grads = static_cast<const T*>(table.grad);
  auto* state = static_cast<Sum<T>*>(table.state);
  for (int64_t i = 0, next; i < count; i = next) {
    const int64_t at = lookups[i].row * width;
    for (next = i + 1; next < count && lookups[next].row == lookups[i].row; ++next) {
    }
    if (next + kAhead <= count) {
      const int64_t later = lookups[next + kAhead - 1].row * width;
      fetch_row(weight + later, row_bytes);
      if (table.trail) fetch_row(table.trail + later, row_bytes);
      if (rule == BagRule::kAdagrad) fetch_row(state + later, width * static_cast<int64_t>(sizeof(Sum<T>)));
    }
    // In the order of the rows, gradients are far apart too. Those of one row are in the order of the bags.
    for (int64_t later = std::max(next, i + kAhead); later < std::min(count, next + kAhead); ++later)
      fetch_row(grads + lookups[later].bag * width, row_bytes);
    const RowUpdate<T> row{op,
                           weight + at,
                           table.trail ? table.trail + at : nullptr,
                           state ? state + at : nullptr,
                           grads,
                           lookups + i,
                           scales + i,
                           next - i};
    int64_t column = 0;
    for (; column + kVectors * kLanes<T> <= width; column += kVectors * kLanes<T>)
      update_block<T, rule, kVectors>(row, column);
    for (; column + kLanes<T> <= width; column += kLanes<T>) update_block<T, rule, 1>(row, column);
    for (; column < width; ++column) update_element<T, rule>(row, column);
  }
}
