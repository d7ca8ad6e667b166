// Vector code of roi_align.cpp; see each_isa.h for how it is included.
//
// Samples are interpolated along both axes independently, so that a region has one list of taps for its rows
// and one for its columns. Channels are innermost: vectors hold channels, and a thread of the backward pass
// owns channels.

// The two pixels that a sample lies between, along one axis, and their weights; both are 0 outside the image.
template <class Number>
struct Tap {
  int64_t low, high;
  Number low_weight, high_weight;
};

template <class Number>
inline Tap<Number> tap_at(Number position, int64_t size) {
  if (!(position >= -1) || position > static_cast<Number>(size)) return {0, 0, 0, 0};
  position = std::max<Number>(position, 0);
  const auto low = static_cast<int64_t>(position);
  if (low >= size - 1) return {size - 1, size - 1, 1, 0};
  const Number fraction = position - static_cast<Number>(low);
  return {low, low + 1, 1 - fraction, fraction};
}

// A region as samples: `rows` lists pooled_height times grid[0] taps, `columns` pooled_width times grid[1].
template <class Number>
struct Region {
  int64_t image, grid[2];
  Tap<Number>*rows, *columns;
  Number count;  // of the samples that a result is the mean of
};

template <class T, class Number>
inline Region<Number> make_region(const RoiAlign& op, int64_t index, Scratch& scratch) {
  const auto* box = static_cast<const Number*>(op.boxes) + index * 5;
  const auto scale = static_cast<Number>(op.spatial_scale),
             offset = static_cast<Number>(op.aligned ? 0.5 : 0);
  const int64_t pooled[2] = {op.pooled_height, op.pooled_width}, image[2] = {op.height, op.width};
  Region<Number> region;
  region.image = static_cast<int64_t>(box[0]);
  Tap<Number>* taps[2];
  for (int axis = 0; axis < 2; ++axis) {
    const Number start = box[2 - axis] * scale - offset, end = box[4 - axis] * scale - offset;
    const Number extent = op.aligned ? end - start : std::max<Number>(end - start, 1);
    const Number bin = extent / static_cast<Number>(pooled[axis]);
    const int64_t grid = op.sampling_ratio > 0 ? op.sampling_ratio : static_cast<int64_t>(std::ceil(bin));
    region.grid[axis] = std::max<int64_t>(grid, 0);
    taps[axis] = scratch.get<Tap<Number>>(axis, pooled[axis] * region.grid[axis]);
    for (int64_t p = 0; p < pooled[axis]; ++p)
      for (int64_t i = 0; i < region.grid[axis]; ++i)
        taps[axis][p * region.grid[axis] + i] =
            tap_at(start + static_cast<Number>(p) * bin +
                       (static_cast<Number>(i) + Number(0.5)) * bin / static_cast<Number>(grid),
                   image[axis]);
  }
  region.rows = taps[0];
  region.columns = taps[1];
  region.count = static_cast<Number>(std::max<int64_t>(region.grid[0] * region.grid[1], 1));
  return region;
}

// Calls visit(weight, pixel) for the four pixels of each sample of a bin; pixels count elements of a channel.
template <class Number, class Visit>
inline __attribute__((always_inline)) void for_each_pixel(const RoiAlign& op, const Region<Number>& region,
                                                          int64_t row, int64_t column, Visit visit) {
  for (int64_t y = row * region.grid[0]; y < (row + 1) * region.grid[0]; ++y) {
    const Tap<Number>& down = region.rows[y];
    if (down.low_weight == 0 && down.high_weight == 0) continue;
    for (int64_t x = column * region.grid[1]; x < (column + 1) * region.grid[1]; ++x) {
      const Tap<Number>& across = region.columns[x];
      if (across.low_weight == 0 && across.high_weight == 0) continue;
      visit(down.low_weight * across.low_weight, down.low * op.width + across.low);
      visit(down.low_weight * across.high_weight, down.low * op.width + across.high);
      visit(down.high_weight * across.low_weight, down.high * op.width + across.low);
      visit(down.high_weight * across.high_weight, down.high * op.width + across.high);
    }
  }
}

// Channels [channel, channel + N vectors) of one bin.
template <class T, int N, class Number>
inline void pool_channels(const RoiAlign& op, const Region<Number>& region, int64_t row, int64_t column,
                          const T* image, T* result) {
  VectorOf<T> acc[N];
  for (int v = 0; v < N; ++v) acc[v] = VectorOf<T>{};
  for_each_pixel(op, region, row, column, [&](Number weight, int64_t pixel) __attribute__((always_inline)) {
    const T* from = image + pixel * op.channels;
    for (int v = 0; v < N; ++v) acc[v] += weight * load(from + v * kLanes<T>);
  });
  for (int v = 0; v < N; ++v) store(result + v * kLanes<T>, acc[v] / region.count);
}

// Regions [begin, end), channels innermost.
template <class T>
void forward(const RoiAlign& op, int64_t begin, int64_t end, Scratch& scratch) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  constexpr int kVectors = 4;
  for (int64_t index = begin; index < end; ++index) {
    const Region<Number> region = make_region<T, Number>(op, index, scratch);
    const T* image = static_cast<const T*>(op.input) + region.image * op.height * op.width * op.channels;
    T* result = static_cast<T*>(op.result) + index * op.pooled_height * op.pooled_width * op.channels;
    for (int64_t row = 0; row < op.pooled_height; ++row)
      for (int64_t column = 0; column < op.pooled_width; ++column, result += op.channels) {
        int64_t c = 0;
        for (; c + kVectors * kLanes<T> <= op.channels; c += kVectors * kLanes<T>)
          pool_channels<T, kVectors>(op, region, row, column, image + c, result + c);
        for (; c + kLanes<T> <= op.channels; c += kLanes<T>)
          pool_channels<T, 1>(op, region, row, column, image + c, result + c);
        for (; c < op.channels; ++c) {
          Number sum = 0;
          for_each_pixel(op, region, row, column, [&](Number weight, int64_t pixel) {
            sum += weight * static_cast<Number>(image[pixel * op.channels + c]);
          });
          result[c] = static_cast<T>(sum / region.count);
        }
      }
  }
}

// Regions [begin, end), columns innermost: for few regions, where a copy of the image would cost more.
template <class T>
void forward_planes(const RoiAlign& op, int64_t begin, int64_t end, Scratch& scratch) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  for (int64_t index = begin; index < end; ++index) {
    const Region<Number> region = make_region<T, Number>(op, index, scratch);
    const T* plane = static_cast<const T*>(op.input) + region.image * op.height * op.width * op.channels;
    T* result = static_cast<T*>(op.result) + index * op.pooled_height * op.pooled_width * op.channels;
    for (int64_t c = 0; c < op.channels; ++c, plane += op.height * op.width)
      for (int64_t row = 0; row < op.pooled_height; ++row)
        for (int64_t column = 0; column < op.pooled_width; ++column) {
          Number sum = 0;
          for_each_pixel(op, region, row, column, [&](Number weight, int64_t pixel) {
            sum += weight * static_cast<Number>(plane[pixel]);
          });
          *result++ = static_cast<T>(sum / region.count);
        }
  }
}

// Adds the gradients of all regions of one image to channels [begin, end): in the order of the regions, so
// that the sums do not depend on the number of threads. The gradients of the image are sums, of Number.
template <class T>
void backward(const RoiAlign& op, int64_t image, int64_t begin, int64_t end, Scratch& scratch) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Number* sums = static_cast<Number*>(op.result) + image * op.height * op.width * op.channels;
  for (int64_t index = 0; index < op.regions; ++index) {
    if (static_cast<int64_t>(static_cast<const Number*>(op.boxes)[index * 5]) != image) continue;
    const Region<Number> region = make_region<T, Number>(op, index, scratch);
    const T* grad =
        static_cast<const T*>(op.input) + index * op.pooled_height * op.pooled_width * op.channels;
    for (int64_t row = 0; row < op.pooled_height; ++row)
      for (int64_t column = 0; column < op.pooled_width; ++column, grad += op.channels)
        for_each_pixel(op, region, row, column,
                       [&](Number weight, int64_t pixel) __attribute__((always_inline)) {
                         weight /= region.count;
                         Number* to = sums + pixel * op.channels;
                         int64_t c = begin;
                         for (; c + kLanes<T> <= end; c += kLanes<T>)
                           store(to + c, load(to + c) + weight * load(grad + c));
                         for (; c < end; ++c) to[c] += weight * static_cast<Number>(grad[c]);
                       });
  }
}
