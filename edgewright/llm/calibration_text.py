"""The text by which ranges of activations are observed if the user has none: prose, a dialogue, numbers and code."""

from __future__ import annotations

TEXT = """The river rises in the hills north of the town, where rain collects in shallow pools between the stones. By
the time it reaches the old bridge it is wide enough for small boats, and in spring, when the snow melts, it
covers the meadows on both sides. People here have always built on the higher bank. A flood in 1784 carried
away the mill, and the wheel was found eleven kilometres downstream, almost undamaged.

Question: Why is the sky blue?
Answer: Sunlight contains all colours. Molecules of air scatter short wavelengths more strongly than long
ones, so blue light reaches us from every direction, while red light mostly continues in a straight line. At
sunset the light travels through more air, and the blue part is lost on the way.

"I don't think we should go back," said Maria. "Not before the letter arrives."
"And if it never does?" Tom asked. He put the lamp on the table and looked at her for a long time.
"Then we will have learned something," she answered, laughing, "and that is worth more than three weeks of waiting!"

def mean(values: list[float]) -> float:
    if not values:
        raise ValueError("no values")
    total = 0.0
    for value in values:
        total += value
    return total / len(values)

print(mean([1.5, 2.25, 4, 8]))  # 3.9375

To make pancakes for four people you need 250 g of flour, 2 eggs, half a litre of milk and a little salt.
Mix the flour with the milk first, then add the eggs one at a time. Let it rest for 20 minutes. Heat some
butter in a pan, pour in a thin layer, and turn it when the edges are brown.

| country | capital | population (millions) |
|---|---|---|
| France | Paris | 68.4 |
| Japan | Tokyo | 124.5 |
| Kenya | Nairobi | 55.1 |

Dear Dr. Hoffmann, thank you for your message of 3 March. We have checked the figures in section 4.2 again:
the error was ours, and the corrected table is attached. The difference is below 0.7 % and does not change
the conclusion. Please let us know by Friday whether the committee accepts it. Best regards, A. Nguyen

In mathematics, a prime number is a natural number greater than 1 that is not a product of two smaller
natural numbers. There are infinitely many of them, as Euclid showed around 300 BC. Suppose there were only
finitely many; multiply them all and add one; the result has a prime factor, which cannot be any of those in
the list.

System: You are a helpful assistant. User: Write a short poem about autumn. Assistant: The leaves let go
without a sound, the gardens turn to gold and brown; a late bird calls, the light grows thin, and someone
lets the evening in.
"""
