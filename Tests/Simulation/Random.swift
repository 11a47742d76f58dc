/// SplitMix64: every choice of the simulation comes from one of these.
struct Random {
  private var state: UInt64
  init(_ seed: UInt64) { state = seed }

  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
    return z ^ (z >> 31)
  }

  /// 0 up to `limit`, which is positive.
  mutating func below(_ limit: Int) -> Int { Int(next() % UInt64(limit)) }

  /// In so many of 100 cases.
  mutating func chance(_ percent: Int) -> Bool { below(100) < percent }

  mutating func pick<T>(_ choices: [T]) -> T { choices[below(choices.count)] }

  mutating func maybe<T>(_ choices: [T]) -> T? { choices.isEmpty ? nil : pick(choices) }

  mutating func shuffled<T>(_ values: [T]) -> [T] {
    var values = values
    for index in stride(from: values.count - 1, to: 0, by: -1) { values.swapAt(index, below(index + 1)) }
    return values
  }

  mutating func bytes(_ count: Int) -> [UInt8] { (0..<count).map { _ in UInt8(truncatingIfNeeded: next()) } }
}

/// FNV-1a, 64 bits.
func hash(_ bytes: some Sequence<UInt8>) -> UInt64 {
  bytes.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
}
