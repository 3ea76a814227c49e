//! typed q, k, v, d_out
//! use slices
// dq[t] = scale·Σ_j ds_j·k_j, with p_j = e^(s_j − lse), ds_j = p_j·(dOut·v_j − delta). Lanes hold queries as in attention.
struct P { d: u32, t: u32, heads: u32, kv_heads: u32, scale: f32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> q: array<TYPE_q>;
@group(0) @binding(2) var<storage, read> k: array<TYPE_k>;
@group(0) @binding(3) var<storage, read> v: array<TYPE_v>;
@group(0) @binding(4) var<storage, read> d_out: array<TYPE_d_out>;
@group(0) @binding(5) var<storage, read> lse: array<f32>;
@group(0) @binding(6) var<storage, read> delta: array<f32>;
@group(0) @binding(7) var<storage, read> doc_start: array<i32>;
@group(0) @binding(8) var<storage, read_write> dq: array<f32>;

var<PER_LANE> query: array<vec4f, ROWS * SLICE * SPREAD>;
var<PER_LANE> back: array<vec4f, ROWS * SLICE * SPREAD>;
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
  var log_total: array<f32, ROWS>;
  var shift: array<f32, ROWS>;
  for (var r = 0u; r < ROWS; r++) {
    let t = min(t0 + r, p.t - 1u);
    let row = t * p.heads + h;
    start[r] = u32(doc_start[t]);
    log_total[r] = lse[row];
    shift[r] = delta[row];
    for (var i = 0u; i < STEPS; i++) {
      let m = mine(r * SLICE + i, lane);
      query[m] = load_q4(row * HEAD + i * STRIDE + part) * p.scale;
      back[m] = load_d_out4(row * HEAD + i * STRIDE + part);
      sum[m] = vec4f(0.0);
    }
  }
  for (var j = low; j < high; j += 4u) {
    let key = vec4u(j, j + 1u, j + 2u, j + 3u);
    let at = (min(key, vec4u(p.t - 1u)) * p.kv_heads + kv) * HEAD + part;
    var s = array<vec4f, ROWS>();
    var dp = array<vec4f, ROWS>();
    for (var i = 0u; i < STEPS; i++) {
      let a = load_k4(at.x + i * STRIDE);
      let b = load_k4(at.y + i * STRIDE);
      let c = load_k4(at.z + i * STRIDE);
      let d = load_k4(at.w + i * STRIDE);
      let va = load_v4(at.x + i * STRIDE);
      let vb = load_v4(at.y + i * STRIDE);
      let vc = load_v4(at.z + i * STRIDE);
      let vd = load_v4(at.w + i * STRIDE);
      for (var r = 0u; r < ROWS; r++) {
        let x = query[mine(r * SLICE + i, lane)];
        let y = back[mine(r * SLICE + i, lane)];
        s[r] += vec4f(dot(x, a), dot(x, b), dot(x, c), dot(x, d));
        dp[r] += vec4f(dot(y, va), dot(y, vb), dot(y, vc), dot(y, vd));
      }
    }
    var ds: array<vec4f, ROWS>;
    for (var r = 0u; r < ROWS; r++) {
      let seen = (key >= vec4u(start[r])) & (key <= vec4u(min(t0 + r, p.t - 1u)));
      let e = exp(min(slice_sum(s[r]) - log_total[r], vec4f(0.0)));
      ds[r] = select(vec4f(0.0), e * (slice_sum(dp[r]) - shift[r]) * p.scale, seen);
    }
    for (var i = 0u; i < STEPS; i++) {
      let a = load_k4(at.x + i * STRIDE);
      let b = load_k4(at.y + i * STRIDE);
      let c = load_k4(at.z + i * STRIDE);
      let d = load_k4(at.w + i * STRIDE);
      for (var r = 0u; r < ROWS; r++) {
        let m = mine(r * SLICE + i, lane);
        let x = sum[m];
        sum[m] = x + ds[r].x * a + ds[r].y * b + ds[r].z * c + ds[r].w * d;
      }
    }
  }
  for (var r = 0u; r < ROWS; r++) {
    let t = t0 + r;
    if (t >= p.t) { break; }
    for (var i = 0u; i < STEPS; i++) {
      let x = sum[mine(r * SLICE + i, lane)];
      for (var c = 0u; c < 4u; c++) { dq[(t * p.heads + h) * HEAD + i * STRIDE + part + c] = x[c]; }
    }
  }
}
