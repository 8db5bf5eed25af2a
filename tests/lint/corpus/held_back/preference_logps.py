"""Metrics of a preference loss whose batches mix wanted and unwanted answers."""

import torch


class PreferenceMetrics:
    def __init__(self, accelerator, beta):
        self.accelerator = accelerator
        self.beta = beta

    def split(self, logps, wanted):
        return logps[wanted], logps[~wanted]

    def __call__(self, policy_logps, reference_logps, wanted):
        metrics = {}
        rewards = self.beta * (policy_logps - reference_logps).detach()
        chosen, rejected = self.split(rewards, wanted)
        if chosen.numel() > 0:
            metrics["rewards/chosen"] = self.accelerator.gather(chosen.mean()).mean().item()
        if rejected.numel() > 0:
            metrics["rewards/rejected"] = self.accelerator.gather(rejected.mean()).mean().item()
        metrics["rewards/std"] = torch.std(rewards).item()
        return metrics
