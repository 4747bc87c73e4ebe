"""One solution of each exercise. Together they are an engine: kvlab.build.engine(*PIECES)."""


class Tables:  # 1: slots and the block table
    def missing(self, request, upto):
        return max(0, -(-upto // self.block_size) - len(request.table))

    def slot(self, request, position):
        block = request.table[position // self.block_size]
        return block * self.block_size + position % self.block_size


class Pool:  # 2: the block pool
    def __init__(self, num_blocks, last_first=False):
        self.blocks = list(range(num_blocks))
        self.last_first = last_first

    @property
    def free(self):
        return len(self.blocks)

    def allocate(self, count):
        taken, self.blocks = self.blocks[:count], self.blocks[count:]
        return taken

    def release(self, blocks):
        if self.last_first:
            self.blocks = list(reversed(blocks)) + self.blocks
        else:
            self.blocks = self.blocks + list(blocks)


class Batching:  # 3: continuous batching within a budget
    def schedule(self):
        for request in list(self.running):
            tokens = min(self.left(request), self.budget)
            if request not in self.running or tokens == 0:
                continue
            if self.make_room(request, request.computed + tokens):
                self.process(request, tokens)
        while self.waiting and self.budget > 0 and not self.preempted:
            head = self.waiting[0]
            if len(self.running) >= self.max_running or not self.may_enter(head):
                break
            self.enter(head)


class Preempting:  # 4: preempt, and resume by recompute
    def make_room(self, request, upto):
        while self.missing(request, upto) > self.pool.free:
            victim = self.victim(request)
            self.pause(victim)
            if victim is request:
                return False
        return True

    def preempt(self, victim):
        self.unprocess(victim)
        self.release(victim)
        victim.computed = 0
        self.running.remove(victim)
        self.waiting.insert(0, victim)


class Swapping:  # 5: swap, with its three orderings
    def swap_out(self, victim):
        self.unprocess(victim)
        self.running.remove(victim)
        self.waiting.insert(0, victim)
        used = -(-victim.computed // self.block_size)
        victim.host_table = self.host.allocate(used)
        self.copy_out(victim, victim.table[:used], victim.host_table)

    def swapped_out(self, victim):
        self.release(victim)

    def swap_in(self, request):
        request.table = self.take(len(request.host_table))
        self.copy_in(request, request.host_table, request.table)

    def swapped_in(self, request):
        self.host.release(request.host_table)
        request.host_table = []
        self.running.append(request)


class Sharing:  # 6: share a prefix
    def hashes(self, request, count):
        made, parent = [], None
        for at in range(count):
            tokens = request.history[at * self.block_size : (at + 1) * self.block_size]
            parent = hash((parent, tuple(tokens)))
            made.append(parent)
        return made

    def find(self, request):
        blocks = []
        for one in self.hashes(request, (len(request.history) - 1) // self.block_size):
            if one not in self.known:
                break
            blocks.append(self.known[one])
        return blocks

    def remember(self, request, upto):
        made = self.hashes(request, upto // self.block_size)
        for one, block in zip(made, request.table, strict=False):
            self.known.setdefault(one, block)

    def share(self, request, blocks):
        request.table = list(blocks)
        request.computed = len(blocks) * self.block_size
        for block in blocks:
            self.references[block] += 1

    def release(self, request):
        for block in request.table:
            self.references[block] -= 1
        gone = [block for block in request.table if self.references[block] == 0]
        self.known = {one: block for one, block in self.known.items() if block not in gone}
        self.pool.release(gone)
        request.table = []

    def writable(self, request):
        at = request.computed // self.block_size
        if at < len(request.table) and self.references[request.table[at]] > 1:
            old = request.table[at]
            (new,) = self.take(1)
            self.copy_block(old, new)
            request.table[at] = new
            self.references[old] -= 1


def victim(running, need):  # 7: a policy that beats `newest`
    return min(running, key=lambda request: request.computed)


class Admitting:  # 8: admission that prevents storms
    def may_enter(self, request):
        if not self.running:
            return self.fits(request)
        blocks = 0
        for one in [*self.running, request]:
            most = len(one.prompt) + one.max_tokens - 1
            blocks += -(-most // self.block_size)
        return self.fits(request) and blocks <= self.num_blocks


PIECES = (Tables, Pool, Batching, Preempting, Swapping, Sharing, Admitting)
