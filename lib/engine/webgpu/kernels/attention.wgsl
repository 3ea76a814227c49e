//! typed q, k, v
//! use slices
// Causal attention within documents, with a running softmax (Milakov & Gimelshein 2018; Dao et al. 2022). SLICES lanes share a query, each
// holding a slice of the head, and a lane has ROWS queries, so that a key that is read serves them all. All lanes of a workgroup walk the
// same keys. Four keys at a time share one rescaling.
struct P { d: u32, t: u32, heads: u32, kv_heads: u32, scale: f32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> q: array<TYPE_q>;
@group(0) @binding(2) var<storage, read> k: array<TYPE_k>;
@group(0) @binding(3) var<storage, read> v: array<TYPE_v>;
@group(0) @binding(4) var<storage, read> doc_start: array<i32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;
@group(0) @binding(6) var<storage, read_write> lse: array<f32>;

var<PER_LANE> query: array<vec4f, ROWS * SLICE * SPREAD>;
var<PER_LANE> sum: array<vec4f, ROWS * SLICE * SPREAD>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) lane: u32) {
  let h = wid.y;
  let kv = h * p.kv_heads / p.heads;
  let first = wid.x * BLOCK;
  let t0 = first + lane / SLICES * ROWS;
  let part = lane % SLICES * 4u;
  let low = u32(doc_start[first]);
  let high = min(first + BLOCK, p.t);
  var start: array<u32, ROWS>;
  var top: array<f32, ROWS>;
  var total: array<f32, ROWS>;
  for (var r = 0u; r < ROWS; r++) {
    let t = min(t0 + r, p.t - 1u);
    start[r] = u32(doc_start[t]);
    top[r] = LOWEST;
    total[r] = 0.0;
    for (var i = 0u; i < STEPS; i++) {
      query[mine(r * SLICE + i, lane)] = load_q4((t * p.heads + h) * HEAD + i * STRIDE + part) * p.scale;
      sum[mine(r * SLICE + i, lane)] = vec4f(0.0);
    }
  }
  for (var j = low; j < high; j += 4u) {
    let key = vec4u(j, j + 1u, j + 2u, j + 3u);
    let at = (min(key, vec4u(p.t - 1u)) * p.kv_heads + kv) * HEAD + part;
    var s = array<vec4f, ROWS>(); // said in so many words: without it lavapipe keeps the values of the last turn
    for (var i = 0u; i < STEPS; i++) {
      let a = load_k4(at.x + i * STRIDE);
      let b = load_k4(at.y + i * STRIDE);
      let c = load_k4(at.z + i * STRIDE);
      let d = load_k4(at.w + i * STRIDE);
      for (var r = 0u; r < ROWS; r++) {
        let x = query[mine(r * SLICE + i, lane)];
        s[r] += vec4f(dot(x, a), dot(x, b), dot(x, c), dot(x, d));
      }
    }
    var e: array<vec4f, ROWS>;
    var fade: array<f32, ROWS>;
    for (var r = 0u; r < ROWS; r++) {
      let seen = (key >= vec4u(start[r])) & (key <= vec4u(min(t0 + r, p.t - 1u)));
      let score = select(vec4f(LOWEST), slice_sum(s[r]), seen);
      let now = max(top[r], max(max(score.x, score.y), max(score.z, score.w)));
      fade[r] = exp(max(top[r] - now, -100.0));
      e[r] = select(vec4f(0.0), exp(max(score - now, vec4f(-100.0))), seen);
      total[r] = total[r] * fade[r] + e[r].x + e[r].y + e[r].z + e[r].w;
      top[r] = now;
    }
    for (var i = 0u; i < STEPS; i++) {
      let a = load_v4(at.x + i * STRIDE);
      let b = load_v4(at.y + i * STRIDE);
      let c = load_v4(at.z + i * STRIDE);
      let d = load_v4(at.w + i * STRIDE);
      for (var r = 0u; r < ROWS; r++) {
        let m = mine(r * SLICE + i, lane);
        let x = sum[m] * fade[r];
        sum[m] = x + e[r].x * a + e[r].y * b + e[r].z * c + e[r].w * d;
      }
    }
  }
  for (var r = 0u; r < ROWS; r++) {
    let t = t0 + r;
    if (t >= p.t) { break; }
    for (var i = 0u; i < STEPS; i++) {
      let o = sum[mine(r * SLICE + i, lane)] / total[r];
      for (var c = 0u; c < 4u; c++) { out[(t * p.heads + h) * HEAD + i * STRIDE + part + c] = o[c]; }
    }
    if (part == 0u) { lse[t * p.heads + h] = top[r] + log(total[r]); }
  }
}
