// cos and sin of position·frequency for RoPE, the same on every adapter: the drivers' own are exact to 2^-11 only, and the product in f32 loses
// digits at long positions. The frequency is given in turns as 32 + 12 bits of fraction, so the product modulo a turn is exact integer
// arithmetic (positions below 2^20), and only an eighth of a turn is left for the series.
fn rotation(position: u32, turns: vec2u) -> vec2f {
  let turn = position * turns.x + ((position * turns.y) >> 12u);
  let quarter = (turn + 0x20000000u) >> 30u;
  let a = f32(bitcast<i32>(turn - (quarter << 30u))) * 1.4629180792671596e-9; // 2π / 2^32
  let s = a * a;
  let sine = a * (1.0 + s * (-0.16666666666666666 + s * (0.008333333333333333 + s * (-0.0001984126984126984 + s * 2.7557319223985893e-6))));
  let cosine = 1.0 + s * (-0.5 + s * (0.041666666666666664 + s * (-0.001388888888888889 + s * 2.48015873015873e-5)));
  switch quarter & 3u {
    case 0u: { return vec2f(cosine, sine); }
    case 1u: { return vec2f(-sine, cosine); }
    case 2u: { return vec2f(-cosine, -sine); }
    default: { return vec2f(sine, -cosine); }
  }
}
