@testable import MappedLog

/// Records as a log has them: id and time, big endian, then data whose bytes follow from the id.
enum Records {
  static func data(_ id: UInt64, count: Int) -> [UInt8] {
    Array(repeating: UInt8(truncatingIfNeeded: id &* 31), count: count)
  }

  /// Publishes events of these sizes.
  static func publish(_ sizes: [Int], to region: MapRegion, keeping oldest: UInt64 = 0, mostParts: Int = .max) {
    let start = region.end
    let records = sizes.enumerated().map { index, size in
      let id = start + UInt64(index)
      return withUnsafeBytes(of: id.bigEndian) { Array($0) } + withUnsafeBytes(of: (id * 10).bigEndian) { Array($0) }
        + data(id, count: size)
    }
    // In one piece of memory, which stays in place during the call.
    let offsets = records.reduce(into: [0]) { $0.append($0.last! + $1.count) }
    records.flatMap { $0 }.withUnsafeBytes { all in
      region.publish(upTo: start + UInt64(sizes.count), keeping: oldest, mostParts: mostParts) { position in
        let index = Int(position - start)
        return UnsafeRawBufferPointer(rebasing: all[offsets[index]..<offsets[index + 1]])
      }
    }
  }
}

func makeRegion(events: Int, bytes: Int, position: UInt64 = 100) throws -> MapRegion {
  try MapRegion(name: "test", events: events, bytes: bytes, generation: 7, epoch: 3, position: position)
}

/// A generator with a seed, so that a failing run can be repeated.
struct SeededGenerator: RandomNumberGenerator {
  private var state: UInt64
  init(_ seed: UInt64) { state = seed &* 0x9E37_79B9_7F4A_7C15 }
  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }
}
