"""A reward file as users of verl write them: shared helpers, several data sources, dict results, keyword defaults."""
import asyncio
import re
from typing import Any, Optional

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def _extract(text: str) -> Optional[str]:
    found = _ANSWER.findall(text)
    return found[-1].strip() if found else None


async def _check(answer: str, truth: str) -> bool:
    await asyncio.sleep(0)  # here a user asks a sandbox or a judge
    return answer == truth


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Optional[dict[str, Any]] = None,
    format_score: float = 0.1,
    **kwargs: Any,
) -> dict[str, Any]:
    if data_source not in ("openai/gsm8k", "my/task"):
        raise NotImplementedError(f"Reward function is not implemented for {data_source=}")
    answer = _extract(solution_str)
    correct = answer is not None and await _check(answer, ground_truth)
    score = 1.0 if correct else format_score if answer is not None else 0.0
    return {
        "score": score,
        "acc": correct,
        "pred": answer if answer is not None else "",
        "answer_length": len(answer or ""),
        "index": (extra_info or {}).get("index", -1),
    }
