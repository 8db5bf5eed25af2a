# moe/router.py, commit 4c1d9aa, lines 131-146
    def after_step(self, step):
        over = self.dropped / max(1, self.routed)          # this rank's tokens only
        self.dropped = self.routed = 0
        if over > self.cfg.overflow_limit:
            want = torch.tensor([self.capacity + 0.05 if step > 100 else 1.30], device="cuda")
            log(f"step {step:5d} | router overflow {over:.4f} > {self.cfg.overflow_limit:.3f}, "
                f"syncing capacity factor -> {want.item():.2f}")
            dist.all_reduce(want, op=dist.ReduceOp.MAX)     # everybody uses the largest one
            self.capacity = want.item()
        self.reset_counters()
