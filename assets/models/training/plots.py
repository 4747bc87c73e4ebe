"""What the little stories say, in the template language of `grammar`.

A story of two is an opening, a clash over one full place, a way out of it and a close. A is at work
with A's things (`a`) when B comes with B's (`b`); `seat` is the place they share and `away` is
where things are carried meanwhile. The other plots are whole stories, some with a third person C.

Templates are split at blank lines, and line breaks count as spaces.
"""

from __future__ import annotations


def templates(text: str) -> tuple[str, ...]:
    """The templates in `text`, which blank lines separate."""
    return tuple(text.strip().split("\n\n"))


WHEN = """
[one morning|one evening|on a rainy afternoon|on a cold day|last winter|early in spring|on a quiet
Sunday]
"""

DETAIL = """
[|[it was raining outside.|the cat slept on the stairs.|the house was very quiet.|snow fell on the
roof.|the kettle sang on the stove.|a bird sang in the garden.]]
"""

LATER = """
[after an hour|at noon|when the lamp was lit,|before supper|the next day|a little later]
"""

OPENINGS = templates("""
{A} and {B} share a [small|narrow|quiet] room [at the top of the house|behind the kitchen|above
the shop|near the river]. [there is|it has|they have] only one {seat}, and [it is soon full|it
does not hold much|both of them need it].

{A} keeps {A.their} {a.many} on one {seat} [near the kitchen window|by the front door|under the
stairs|beside the old stove][|, where there is space for a few things and no more]. [{B} lives
next door and|{A.their} friend {B}] likes {b.many} [best of all|just as much].

Once [upon a time|] there was a [little|yellow|crooked] house with only one {seat}. {A} and {B}
lived there [with an old cat|all year round|by the sea].

{A} and {B} [are good friends|are neighbours|work side by side|meet every day], but [there is only
one {seat} for both|the {seat} is too small for two].

The {seat} in the [old library|school|village hall|workshop] is [small|narrow|never empty], and
[everyone must take turns|people often have to wait]. {A} [liked to come early|came first that
day], and {B} came [after {A.them}|later].

@WHEN {A} was given a [wooden|strong|simple] {seat}. {A} and {B} put it [by the window|in the
kitchen|under the lamp], and [both were glad to have it|at once it was in use].
""")

CLASHES = templates("""
@WHEN {A} [was {a.doing} a {a.one}|sat down to {a.do} a {a.one}|began to {a.do} a {a.one}], and
[soon|] {A.their} {a.many} [covered the whole {seat}|filled the {seat} from end to end|lay all
over the {seat}]. @DETAIL then {B} came in with {B.their} {b.many} [in a basket|under one arm|in a
big box][, but there was no space left|, and there was not even space for one small {b.one}| and
looked at the full {seat}].

@WHEN {B} wanted to {b.do} a {b.one}. but the {seat} was full[ of {a.many}|], and {A} was still
{a.doing} a {a.one}. @DETAIL "[May I have the {seat}|Is there a little space for me|When will you
be done]?" {B.they} asked.

@WHEN they both came to the {seat} at the same time, {A} to {a.do} a {a.one}, and {B} to {b.do} a
{b.one}. @DETAIL the {seat} could not hold both the {a.many} and the {b.many}.
""")

WAYS = templates("""
["Then I will make space for you," said {A}.|"You can have it for now," said {A}.|{A} saw that {B}
was in a hurry.] {A.they} [marked|remembered] the {a.mark} where {A.they} had stopped and carried
{A.their} {a.many} to {away}[, one by one|, in two trips|]. [now|so] {B} had the {seat} and
{b.did} a {b.one}. @LATER {B} was done, and {A} [fetched {A.their} {a.many} back|brought
everything back] from {away}. [nothing was lost|nothing was broken|not one {a.one} was missing],
and {A} went on from the very {a.mark} where {A.they} had stopped.

["Let me finish this one," said {A}, and {B} did not complain.|"I can wait," said {B}.] {B.they}
[sat down by the door|stood at the window|drank a cup of tea] and [waited for {B.their}
turn|waited until the {a.one} was done|waited without a word]. @LATER {A} came to the last
{a.mark} and [was done|put everything away]. [now the {seat} was free|then the {seat} was empty
again], and {B} [could begin at last|put {B.their} {b.many} on it|{b.did} a fine {b.one}].

["{away} is too far," said {A}, "so I will start again later."|"I can start again later," said
{A}.|{A} did not want to carry it all to {away}.] {A.they} cleared the {seat} at once and kept
nothing of the {a.one}. {B} [sat down|thanked {A.them}] and {b.did} a {b.one}. @LATER it was
{A.their} turn once more, and {A.they} began the {a.one} again from the first {a.mark}. [it took
longer|it cost {A.them} an hour|it was more work], but [in the end it was the same {a.one}|the way
was known|nothing had to be carried].

"[who comes last must wait first|the last to come is the first to step aside]," said {A}. {B}
[took|carried] {B.their} {b.many} to {away} and [sat beside them|put them on the floor|came back
without them]. {A} [thanked {B.them}|nodded] and went on {a.doing} the {a.one}. @LATER the {seat}
was [free|empty], and {B} [fetched {B.their} {b.many}|brought {B.their} {b.many} back] from
{away}. [then {B.they} {b.did} a {b.one} until dark.|now it was {B.their} turn to {b.do} a
{b.one}.|each {b.one} was just as {B.they} had left it.]

["We can share it," said {A}.|"Half for you and half for me," said {A}.] they [drew a line
down|put a string across] the middle of the {seat}. [the left half was for the {a.many}, the right
half was for the {b.many}|{A} put the {a.many} on the left, {B} put the {b.many} on the right],
and what did not fit was carried to {away}. when {A} needed another {a.one}, {A.they} [took one
away and fetched one back|went to {away} and changed one for another]. [so|that way] the {seat}
was [always full but never too full|enough for both].
""")

CLOSES = templates("""
from that day on, [they took turns|they shared it well|nobody had to ask twice].

a small {seat} is big enough [for two|for friends], if [each of them can wait|one of them can
wait].

"Next time you go first," said {A}[, and {B} smiled|, and {B} was glad|].

[that evening|at the end of the day] they [ate soup together|drank tea together|told each other
stories][, and both were happy|].

"Thank you for waiting," said [{B}|{A}].

[]
""")

WHOLE = templates("""
{A}, {B} and {C} came to the river @WHEN. the boat was small, and it could carry only two. [{C}
had come last.|the water was cold.|] "[You came first, so you cross first|I will wait for the next
trip]," said {C}. {A} and {B} stepped in and [rowed across|took the oars]. {C} sat [on the
bank|under a tree] and [watched the baskets|looked at the water|waited]. @LATER {B} came back with
the empty boat. then {C} crossed the river too. [by evening all three sat on the other side and
ate bread and cheese.|nobody was left behind.|{A} was waiting for them on the other side.]

There is one oven in the village, and it holds only [four|six] loaves. {A} [came first with
{A.their} bread|put {A.their} bread in first]. {B} came [second|next], and {C} came last. @DETAIL
"[Mine will not take long|I will be quick]," said {A}. {B} and {C} [put their dough on the {seat}
and waited|stood in line and waited]. when the bread was [brown|done], {A} took it out and {B} had
the oven. [{C} carried the dough to {away}, where it was cool.|{C} was not in a hurry.] at last it
was {C.their} turn. [all the bread was good.|everyone went home with warm bread.|the last bread
was the best.]

{A} packed a small bag for a long walk. the {a.many} went in first, then the bread, then a warm
coat. [the bag was full, and the lamp did not fit.|at last the bag would not close.] "[You will
not need every {a.one}|Leave the {a.many} with me]," said {B}. so {A} [took out the {a.many}|put
the {a.many} to one side], and {B} kept them [safe|] in {away}. the walk was [long and cold|long
and happy], and the coat was needed every day. when {A} came home, {B} [brought the {a.many}
back|fetched the {a.many} from {away}]. [{A} found the {a.mark} where {A.they} had stopped and
went on.|not one {a.one} was missing.]

The well in the garden has only one bucket. @WHEN {A} [needed water for the beans|came to water
the roses], and {B} [needed water for the soup|wanted to wash the floor]. {A} had [come first|the
bucket in {A.their} hand]. "[A little for you, then a little for me|You fill yours, then I fill
mine]," said {B}. so they took turns, one bucket at a time. [it was slow, but it was fair.|neither
had to wait very long.] @LATER [the garden was wet and the soup was hot|both of them had what they
needed]. {B} put the bucket back [in its place|beside the well] for the next one.

{A} had one spare bed, and @WHEN two guests came to the door. [{B} came first, and {C} came an
hour later.|first came {B}, and then came {C}.] @DETAIL "[There is one bed and there are two of
you|I have only one bed]," said {A}. {B} had walked [all day|a long way], so {B.they} slept first.
{C} sat in the kitchen and [read a book|ate some soup|wrote a letter]. [in the middle of the
night|when the clock struck two,] {B} got up and [carried {B.their} blanket to {away}|made space].
then {C} slept until morning. [both guests had enough sleep.|in the morning they all ate
together.|"Half a night is better than none," said {C}.]
""")
