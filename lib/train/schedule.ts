export interface Schedule {
  /** Peak learning rate. */
  lr: number;
  /** Share of the steps that warm up, linearly. */
  warmup: number;
  /** Steps in all. */
  steps: number;
  /** cosine: down to minRatio·lr at the last step; linear: the same in a straight line; constant: lr after the warm-up. */
  shape: "cosine" | "linear" | "constant";
  minRatio?: number;
}

/** The learning rate of step 0, 1, …, steps−1. The warm-up's first step is lr/warmupSteps, not zero, so that no step is lost. */
export function learningRate(step: number, schedule: Schedule): number {
  const { lr, steps, shape, minRatio = 0 } = schedule;
  const warmupSteps = Math.ceil(schedule.warmup * steps);
  if (step < warmupSteps) return (lr * (step + 1)) / warmupSteps;
  const progress = Math.min(1, (step - warmupSteps) / Math.max(1, steps - warmupSteps));
  switch (shape) {
    case "constant":
      return lr;
    case "linear":
      return lr * (minRatio + (1 - minRatio) * (1 - progress));
    case "cosine":
      return lr * (minRatio + ((1 - minRatio) * (1 + Math.cos(Math.PI * progress))) / 2);
  }
}
