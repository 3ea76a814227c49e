//! use reduce, masks
// One workgroup a row. Thresholds are found by bisection on the order of floats as integers, so that nothing is sorted; all tokens that tie
// with a threshold are kept. The draw walks the kept tokens in the order of their ids. The rule is SampleOptions' in types.ts.
struct P { rows: u32, columns: u32, words: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read> temperature: array<f32>;
@group(0) @binding(3) var<storage, read> top_k: array<i32>;
@group(0) @binding(4) var<storage, read> top_p: array<f32>;
@group(0) @binding(5) var<storage, read> seeds: array<vec2u>;
@group(0) @binding(6) var<storage, read> mask_bits: array<u32>;
@group(0) @binding(7) var<storage, read> mask_row: array<i32>;
@group(0) @binding(8) var<storage, read_write> ids: array<i32>;
@group(0) @binding(9) var<storage, read_write> lp: array<f32>;

var<workgroup> masses: array<f32, WG>;

// engine/random.ts: hash2.
fn mix(a: u32) -> u32 {
  var x = (a ^ (a >> 16u)) * 0x7feb352du;
  x = (x ^ (x >> 15u)) * 0x846ca68bu;
  return x ^ (x >> 16u);
}
fn uniform01(seed: u32, counter: u32) -> f32 { return f32(mix(mix(seed) ^ counter) >> 8u) / 16777216.0; }

// Unsigned integers in the order of the floats.
fn order(x: f32) -> u32 {
  let u = bitcast<u32>(x + 0.0);
  return select(u | 0x80000000u, ~u, (u >> 31u) == 1u);
}

fn mass_above(row: u32, cut: u32, high: f32, scale: f32, lane: u32) -> f32 {
  var sum = 0.0;
  for (var v = lane; v < p.columns; v += WG) {
    let l = logits[row * p.columns + v];
    if (allowed(row, v) && order(l) >= cut) { sum += exp(max((l - high) * scale, -100.0)); }
  }
  return wg_sum(sum, lane);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = flat(wid, nwg);
  if (row >= p.rows) { return; }
  let base = row * p.columns;
  let heat = temperature[row];
  let scale = select(1.0, 1.0 / heat, heat > 0.0);

  var high = LOWEST;
  for (var v = lane; v < p.columns; v += WG) { if (allowed(row, v)) { high = max(high, logits[base + v]); } }
  high = wg_max(high, lane);
  let all = mass_above(row, 0u, high, scale, lane);

  if (heat <= 0.0) {
    // The first of the largest.
    var first = p.columns;
    for (var v = lane; v < p.columns; v += WG) {
      if (allowed(row, v) && logits[base + v] == high) { first = min(first, v); }
    }
    let id = p.columns - u32(wg_max(f32(p.columns - first), lane));
    if (lane == 0u) {
      ids[row] = i32(id);
      lp[row] = -log(all);
    }
    return;
  }

  // The k-th largest logit: the largest cut that at least k tokens reach.
  var cut = 0u;
  let k = f32(top_k[row]);
  if (k > 0.0) {
    for (var bit = 0x80000000u; bit > 0u; bit >>= 1u) {
      let tried = cut | bit;
      var count = 0.0;
      for (var v = lane; v < p.columns; v += WG) {
        if (allowed(row, v) && order(logits[base + v]) >= tried) { count += 1.0; }
      }
      if (wg_sum(count, lane) >= k) { cut = tried; }
    }
  }

  // The largest cut above which the mass reaches topP of what top-k left; the largest logit always stays.
  if (top_p[row] < 1.0) {
    let goal = top_p[row] * mass_above(row, cut, high, scale, lane);
    let most = order(high);
    var nucleus = 0u;
    for (var bit = 0x80000000u; bit > 0u; bit >>= 1u) {
      let tried = nucleus | bit;
      let mass = mass_above(row, max(tried, cut), high, scale, lane);
      if (tried <= most && mass >= goal) { nucleus = tried; }
    }
    cut = max(cut, nucleus);
  }

  // Each lane sums a stretch of ids; the lane in whose stretch the draw falls walks it.
  let stretch = (p.columns + WG - 1u) / WG;
  let begin = min(lane * stretch, p.columns);
  let end = min(begin + stretch, p.columns);
  var mass = 0.0;
  for (var v = begin; v < end; v++) {
    let l = logits[base + v];
    if (allowed(row, v) && order(l) >= cut) { mass += exp(max((l - high) * scale, -100.0)); }
  }
  masses[lane] = mass;
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < WG; i++) { total += masses[i]; }
  let draw = uniform01(seeds[row].x, seeds[row].y) * total;
  var before = 0.0;
  var owner = 0u;
  var start = 0.0;
  for (var i = 0u; i < WG; i++) {
    // The last stretch with any mass takes a draw that rounding put past the end.
    if (masses[i] > 0.0 && before <= draw) { owner = i; start = before; }
    before += masses[i];
  }
  if (lane == owner) {
    var sum = start;
    for (var v = begin; v < end; v++) {
      let l = logits[base + v];
      if (allowed(row, v) && order(l) >= cut) {
        sum += exp(max((l - high) * scale, -100.0));
        ids[row] = i32(v);
        lp[row] = (l - high) * scale - log(all);
        if (sum > draw) { break; }
      }
    }
  }
}
