"""The text that models are calibrated on if the user has none: prose, dialogues, numbers, code, other languages.

``TEXT`` is what ranges of activations are observed on; ``LONG_TEXT`` goes on, for rounding weights. It is varied: a
model that is calibrated on one kind of text gets worse at others.
"""

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

LONG_TEXT = (
    TEXT
    + """
User: What is the difference between weather and climate?
Assistant: Weather is what happens in the atmosphere at one place over hours or days: rain this afternoon, wind
tomorrow morning. Climate is the average of weather over decades. One cold winter says little about climate; thirty
of them in a row would. A short way to put it: "Climate is what you expect, weather is what you get."

User: A train leaves at 9:40 and arrives at 13:05. It stops for 15 minutes on the way. How long does it move?
Assistant: From 9:40 to 13:05 is 3 hours and 25 minutes, which is 205 minutes. Minus the 15 minutes of the stop, it
moves for 190 minutes, or 3 hours and 10 minutes.

User: Please rewrite this politely: "Send me the report now."
Assistant: Could you please send me the report when you have a moment? Thank you very much.

User: List three advantages and one disadvantage of solar energy.
Assistant: Advantages:
1. It produces no emissions while it runs.
2. Panels last for 25 years or more and need little care.
3. It works in remote places without a grid.
Disadvantage: it depends on daylight, so energy must be stored for the night.

#include <stdio.h>
#include <stdlib.h>

/* Returns the greatest common divisor of two numbers. */
static unsigned gcd(unsigned a, unsigned b) {
    while (b != 0) {
        unsigned rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s A B\n", argv[0]);
        return EXIT_FAILURE;
    }
    printf("%u\n", gcd(strtoul(argv[1], NULL, 10), strtoul(argv[2], NULL, 10)));
    return EXIT_SUCCESS;
}

SELECT c.name, COUNT(o.id) AS orders, ROUND(SUM(o.total), 2) AS spent
FROM customers AS c LEFT JOIN orders AS o ON o.customer_id = c.id
WHERE o.created_at >= '2021-01-01' GROUP BY c.name HAVING COUNT(o.id) > 3 ORDER BY spent DESC LIMIT 10;

{"id": 4711, "name": "Ada", "active": true, "tags": ["admin", "beta"], "address": {"city": "Turin", "zip": "10121"}}

$ git clone https://example.com/tools/parser.git && cd parser
$ make -j4 test 2>&1 | tail -n 3
ok  parser/lexer   0.412s
ok  parser/ast     0.087s

function debounce(callback, wait = 250) {
  let timer = null;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => callback(...args), wait);
  };
}

<ul class="menu"><li><a href="/">Home</a></li><li><a href="/about.html">About us</a></li></ul>

The heart of a grown person beats about 100,000 times a day. The right side pumps blood through the lungs, where it
takes up oxygen; the left side sends it through the rest of the body. Valves keep it from flowing back. Patients with
high blood pressure often notice nothing for years, and for this reason doctors recommend that it be measured regularly.

In the autumn of 1492 three ships reached an island that none of their crews had seen before. The voyage had taken
thirty-six days from the Canaries. What followed changed both sides of the ocean: maize, potatoes and tomatoes came to
Europe, horses, wheat and diseases to America. Historians still argue about how many people lived there at the time.

Newton's second law says that the acceleration of a body is the force on it divided by its mass, a = F / m. A car of
1200 kg that is pushed with 600 N therefore gains half a metre per second every second, if friction is neglected.
Energy is conserved: what the engine delivers becomes motion, heat and sound.

LONDON, Tuesday - Shares fell for a third day after the central bank raised interest rates by a quarter of a point, to
4.5 percent. The index closed 1.2% lower at 7,318.40. "Markets had expected a pause," said an analyst at a large fund.
Oil rose to $83.15 a barrel, and the pound traded at 1.2634 dollars.

Once there was a fox who lived at the edge of a great forest. Every evening she came down to the brook to drink, and
every evening the old heron stood there on one leg, as if he had never moved. "Don't you get tired?" she asked him at
last. "Of standing? No," said the heron. "Of waiting, sometimes." The fox thought about this all night long. In the
morning she brought him a fish, and laid it on the stone without a word; and from that day on they were friends.

He had not wanted to come. The house was smaller than he remembered, the paint had gone grey, and somebody had cut down
the cherry tree. "You're late," his sister called from the porch, but she was smiling, and before he could answer she
had taken his bag and was asking about the children, the job, the long drive from Ohio. It was easier than he'd feared.

This agreement is made between the Supplier and the Customer. The Supplier shall deliver the goods listed in Annex A
no later than thirty (30) days after receipt of the order. If either party fails to perform any of its obligations, the
other party may terminate this agreement by written notice, without prejudice to any other rights or remedies.

* Battery lasts two full days, screen is bright
* Camera is fine outdoors, noisy in low light
* Gets warm while charging; the manual doesn't mention it
Overall 4/5 stars. I would buy it again, but not at the full price. My wife's older phone takes better pictures, lol.

Le chat dort sur le canapé pendant que la pluie tombe. Demain, nous irons au marché acheter du pain, des pommes et un
peu de fromage. Wie spät ist es? Der Zug nach München fährt um halb neun, aber heute hat er zehn Minuten Verspätung.
¿Dónde está la biblioteca? Está cerca de la plaza, a la izquierda. Il libro è sul tavolo, vicino alla finestra aperta.
O menino correu pela praia até ao pôr do sol. Москва — столица России. 今天天气很好。我们去公园散步吧。
東京は日本の首都です。 오늘은 날씨가 좋습니다. السلام عليكم. नमस्ते, आप कैसे हैं?

# Chapter 3: Sorting

A sorting algorithm is *stable* if equal elements keep their order. Merge sort is stable and takes O(n log n) steps:

```python
def merge_sort(items):
    if len(items) < 2:
        return items
    middle = len(items) // 2
    left, right = merge_sort(items[:middle]), merge_sort(items[middle:])
    result = []
    while left and right:
        result.append(left.pop(0) if left[0] <= right[0] else right.pop(0))
    return result + left + right
```

Exercise 3.1. Show that every comparison sort needs at least n log2(n) - 1.45 n comparisons in the worst case.

Two roads ran out across the moor,
One to the sea and one to town;
I chose the one I knew before,
And met the evening coming down.

Q: Who wrote "Pride and Prejudice"? A: Jane Austen, in 1813.
Q: What is the chemical symbol for gold? A: Au.
Q: How many sides does a hexagon have? A: Six.
Q: Translate "good morning" into Italian. A: Buongiorno.
Q: What is 17 times 6? A: 102.
Q: Which planet is closest to the sun? A: Mercury.

To replace the filter, switch the machine off and wait until it is cold. Turn the cover counterclockwise, pull the old
filter out, and push the new one in until it clicks. Run two litres of clear water through it before you use it again.
Warning: never open the cover while the pump is running. If the red light stays on, call the service (+44 20 7946 0958).

Subject: Re: meeting on Thursday
Hi all, thanks for the quick replies! Room 2.14 is booked from 10 to 11:30. Sam will show the new prototype first, then
we go through the open points: budget, the schedule for Q3, and who answers support mail in August. Please add anything
that is missing to the list before Wednesday noon. Cheers, Priya

The theory of evolution explains how species change. Individuals differ, some of the differences are inherited, and
those that help an individual to survive and to have offspring become more common from generation to generation. Over
long times, populations that are separated may become so different that they no longer interbreed: new species.
"""
)
