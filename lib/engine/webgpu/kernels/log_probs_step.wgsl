//! use reduce, masks
// Takes a chunk of logits [R, columns] (vocabulary first … first + columns) into the rows' states (max, Σe^(l−max), Σe^(l−max)·(l−max), target's logit).
// LAST: writes lp, lse and the entropy instead of a state.
struct P { rows: u32, columns: u32, first: u32, first_row: u32, words: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read> targets: array<i32>;
@group(0) @binding(3) var<storage, read> mask_bits: array<u32>;
@group(0) @binding(4) var<storage, read> mask_row: array<i32>;
@group(0) @binding(5) var<storage, read_write> states: array<vec4f>;
@group(0) @binding(6) var<storage, read_write> lp: array<f32>;
@group(0) @binding(7) var<storage, read_write> lse: array<f32>;
@group(0) @binding(8) var<storage, read_write> entropy: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let r = flat(wid, nwg);
  if (r >= p.rows) { return; }
  let m = p.first_row + r;
  let base = r * p.columns;
  var state = vec4f(LOWEST, 0.0, 0.0, LOWEST);
  if (p.first != 0u) { state = states[r]; }

  var high = LOWEST;
  for (var c = lane; c < p.columns; c += WG) {
    if (allowed(m, p.first + c)) { high = max(high, logits[base + c]); }
  }
  high = max(wg_max(high, lane), state.x);
  var sum = 0.0;
  var moment = 0.0;
  for (var c = lane; c < p.columns; c += WG) {
    if (allowed(m, p.first + c)) {
      let d = logits[base + c] - high;
      let e = exp(max(d, -100.0));
      sum += e;
      moment += e * d;
    }
  }
  sum = wg_sum(sum, lane);
  moment = wg_sum(moment, lane);
  let drop = state.x - high;
  let f = exp(max(drop, -100.0));
  if (state.y > 0.0) {
    sum += state.y * f;
    moment += f * (state.z + state.y * drop);
  }
  let target_column = u32(targets[m]) - p.first;
  var logit = state.w;
  if (target_column < p.columns) { logit = logits[base + target_column]; }
  if (lane != 0u) { return; }
  if (LAST) {
    let log_sum = high + log(sum);
    lp[m] = logit - log_sum;
    lse[m] = log_sum;
    if (ENTROPY) { entropy[m] = log(sum) - moment / sum; }
  } else {
    states[r] = vec4f(high, sum, moment, logit);
  }
}
