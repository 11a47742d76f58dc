import Glibc

/// The seeds of a test that makes a random run of each: the first `count`, or those that `STREAMD_SEEDS` names (`1000..<1040`).
/// With it `deploy/test --all` makes more runs, `deploy/nightly` others, and anyone repeats a single one (`17..<18`).
public func seeds(_ count: UInt64) -> Range<UInt64> {
  guard let text = unsafe getenv("STREAMD_SEEDS").map({ unsafe String(cString: $0) }), !text.isEmpty else {
    return 1..<count + 1
  }
  let ends = text.split(separator: "..<").compactMap { UInt64($0) }
  precondition(ends.count == 2 && ends[0] < ends[1], "STREAMD_SEEDS is \(text), not FIRST..<END")
  return ends[0]..<ends[1]
}
