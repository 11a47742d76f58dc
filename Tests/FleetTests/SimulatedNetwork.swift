/// A source of randomness that a seed determines. Source: SplitMix64 (Steele, Lea, Flood 2014).
struct SeededRandom {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    z = (z ^ z >> 30) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ z >> 27) &* 0x94d0_49bb_1331_11eb
    return z ^ z >> 31
  }

  mutating func below(_ bound: UInt64) -> UInt64 { next() % bound }

  mutating func isOne(of count: UInt64) -> Bool { below(count) == 0 }
}

/// Messages under way, in the order of their arrival.
struct SimulatedNetwork<Message> {
  private var queue: [(time: UInt64, order: UInt64, message: Message)] = []
  private var order: UInt64 = 0

  var nextTime: UInt64? { queue.first?.time }

  mutating func add(_ message: Message, at time: UInt64) {
    order += 1
    queue.append((time, order, message))
    var child = queue.count - 1
    while child > 0, isBefore(child, (child - 1) / 2) {
      queue.swapAt(child, (child - 1) / 2)
      child = (child - 1) / 2
    }
  }

  /// The queue is a binary heap.
  mutating func takeFirst() -> (time: UInt64, message: Message) {
    queue.swapAt(0, queue.count - 1)
    let first = queue.removeLast()
    var parent = 0
    while true {
      var least = parent
      for child in [2 * parent + 1, 2 * parent + 2] where child < queue.count && isBefore(child, least) {
        least = child
      }
      guard least != parent else { return (first.time, first.message) }
      queue.swapAt(parent, least)
      parent = least
    }
  }

  private func isBefore(_ a: Int, _ b: Int) -> Bool {
    (queue[a].time, queue[a].order) < (queue[b].time, queue[b].order)
  }
}
