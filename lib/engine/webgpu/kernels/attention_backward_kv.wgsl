//! typed q, k, v, d_out
// dv_j = Σ_t p_tj·dOut_t, dk_j = scale·Σ_t ds_tj·q_t, over the query heads of the key's head and the later queries of its document.
// A lane a key; all lanes walk the same queries, four at a time.
struct P { d: u32, t: u32, heads: u32, kv_heads: u32, scale: f32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> q: array<TYPE_q>;
@group(0) @binding(2) var<storage, read> k: array<TYPE_k>;
@group(0) @binding(3) var<storage, read> v: array<TYPE_v>;
@group(0) @binding(4) var<storage, read> d_out: array<TYPE_d_out>;
@group(0) @binding(5) var<storage, read> lse: array<f32>;
@group(0) @binding(6) var<storage, read> delta: array<f32>;
@group(0) @binding(7) var<storage, read> doc_end: array<i32>;
@group(0) @binding(8) var<storage, read_write> dk: array<f32>;
@group(0) @binding(9) var<storage, read_write> dv: array<f32>;

var<PER_LANE> key: array<vec4f, D / 4u * SPREAD>;
var<PER_LANE> value: array<vec4f, D / 4u * SPREAD>;
var<PER_LANE> d_key: array<vec4f, D / 4u * SPREAD>;
var<PER_LANE> d_value: array<vec4f, D / 4u * SPREAD>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) lane: u32) {
  let kv = wid.y;
  let first = wid.x * WG;
  let j = first + lane;
  let jk = min(j, p.t - 1u);
  let end = u32(doc_end[jk]);
  let high = u32(doc_end[min(first + WG, p.t) - 1u]);
  let at = (jk * p.kv_heads + kv) * HEAD;
  for (var i = 0u; i < HEAD / 4u; i++) {
    key[mine(i, lane)] = load_k4(at + i * 4u) * p.scale;
    value[mine(i, lane)] = load_v4(at + i * 4u);
    d_key[mine(i, lane)] = vec4f(0.0);
    d_value[mine(i, lane)] = vec4f(0.0);
  }
  // Query heads h with h·K/H = kv.
  let head_low = (kv * p.heads + p.kv_heads - 1u) / p.kv_heads;
  let head_high = ((kv + 1u) * p.heads + p.kv_heads - 1u) / p.kv_heads;
  for (var h = head_low; h < head_high; h++) {
    for (var t0 = first; t0 < high; t0 += 4u) {
      let t = vec4u(t0, t0 + 1u, t0 + 2u, t0 + 3u);
      let row = min(t, vec4u(p.t - 1u)) * p.heads + h;
      let r = row * HEAD;
      var s = vec4f(0.0);
      var dp = vec4f(0.0);
      for (var i = 0u; i < HEAD / 4u; i++) {
        let x = key[mine(i, lane)];
        let y = value[mine(i, lane)];
        s += vec4f(dot(x, load_q4(r.x + i * 4u)), dot(x, load_q4(r.y + i * 4u)), dot(x, load_q4(r.z + i * 4u)), dot(x, load_q4(r.w + i * 4u)));
        dp += vec4f(dot(y, load_d_out4(r.x + i * 4u)), dot(y, load_d_out4(r.y + i * 4u)), dot(y, load_d_out4(r.z + i * 4u)), dot(y, load_d_out4(r.w + i * 4u)));
      }
      let seen = (t >= vec4u(jk)) & (t < vec4u(end));
      let log_total = vec4f(lse[row.x], lse[row.y], lse[row.z], lse[row.w]);
      let shift = vec4f(delta[row.x], delta[row.y], delta[row.z], delta[row.w]);
      let e = select(vec4f(0.0), exp(min(s - log_total, vec4f(0.0))), seen);
      let ds = e * (dp - shift) * p.scale;
      for (var i = 0u; i < HEAD / 4u; i++) {
        let m = mine(i, lane);
        d_value[m] = d_value[m] + e.x * load_d_out4(r.x + i * 4u) + e.y * load_d_out4(r.y + i * 4u) + e.z * load_d_out4(r.z + i * 4u) + e.w * load_d_out4(r.w + i * 4u);
        d_key[m] = d_key[m] + ds.x * load_q4(r.x + i * 4u) + ds.y * load_q4(r.y + i * 4u) + ds.z * load_q4(r.z + i * 4u) + ds.w * load_q4(r.w + i * 4u);
      }
    }
  }
  if (j >= p.t) { return; }
  for (var i = 0u; i < HEAD / 4u; i++) {
    let x = d_key[mine(i, lane)];
    let y = d_value[mine(i, lane)];
    for (var c = 0u; c < 4u; c++) {
      dk[at + i * 4u + c] = x[c];
      dv[at + i * 4u + c] = y[c];
    }
  }
}
