export type Stopwatch = ReturnType<typeof stopwatch>;

/** Time by kind of work. */
export function stopwatch() {
  const spent = { rollout: 0, reward: 0, update: 0 };
  let running: keyof typeof spent | null = null;
  let since = performance.now();
  const stop = () => {
    const now = performance.now();
    if (running) spent[running] += (now - since) / 1000;
    since = now;
    running = null;
  };
  return {
    start(kind: keyof typeof spent) {
      stop();
      running = kind;
    },
    stop() {
      stop();
      const total = spent.rollout + spent.reward + spent.update;
      const share = (x: number) => x / total;
      return {
        total,
        shares: {
          rolloutShare: share(spent.rollout),
          rewardShare: share(spent.reward),
          updateShare: share(spent.update),
        },
      };
    },
  };
}
