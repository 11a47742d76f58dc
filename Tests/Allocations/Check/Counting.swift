import CAllocationCounter
import Reactive

struct Broken: Error {}
typealias Source = PassthroughSubject<Int, Broken>

// One thread uses them.
nonisolated(unsafe) var failures = 0
nonisolated(unsafe) var delivered = 0
let steps = 10_000

func judge(_ name: String, _ found: Int, allowed: Int, of unit: String) {
  guard found > allowed else { return }
  print("\(name): \(found) \(unit), allowed are \(allowed)")
  failures += 1
}

/// Runs `step` until all buffers have their final size, then counts allocations.
func check(_ name: String, _ step: (Int) -> Void) {
  for value in 0..<1000 { step(value) }
  let (before, deliveredBefore) = (allocation_count(), delivered)
  for value in 0..<steps { step(value) }
  judge(name, allocation_count() - before, allowed: 0, of: "allocations for \(steps) values")
  if delivered - deliveredBefore < steps / 2 {
    print("\(name): \(delivered - deliveredBefore) of \(steps) values arrived")
    failures += 1
  }
}

/// Checks a subscriber with unlimited demand, then one that requests each value.
func operation<P: Publisher>(_ name: String, _ make: (Source) -> P) {
  let source = Source()
  let sink = make(source).sink(receiveCompletion: { _ in }, receiveValue: { _ in delivered += 1 })
  check(name, source.send)
  sink.cancel()
  let counted = make(source).pausableSink(receiveCompletion: { _ in }) { _ in
    delivered += 1
    return true
  }
  check("\(name), one at a time", source.send)
  counted.cancel()
}

/// Checks a fold. It delivers nothing before the end, so its values are counted upstream.
func fold<P: Publisher>(_ name: String, _ make: (Publishers.HandleEvents<Source>) -> P) {
  let source = Source()
  let sink = make(source.handleEvents(receiveOutput: { _ in delivered += 1 }))
    .sink(receiveCompletion: { _ in }, receiveValue: { _ in })
  check(name, source.send)
  sink.cancel()
}
/// Applies the operators of any publisher: a sequence has its own, which are evaluated immediately.
private func mapAndFilter<P: Publisher<Int, Never>>(_ publisher: P) -> some Publisher<Int, Never> {
  publisher.map { $0 &+ 1 }.filter { $0 != 7 }
}

/// Checks that the number of allocations does not depend on the length of a sequence.
func checkSequence() {
  func allocations(_ count: Int) -> Int {
    let before = allocation_count()
    _ = mapAndFilter((0..<count).publisher).sink { _ in delivered += 1 }
    return allocation_count() - before
  }
  _ = allocations(10)
  judge("sequence", allocations(steps), allowed: allocations(10), of: "allocations for \(steps) values")
}

/// Checks the memory of a sink with its subscription.
func checkSubscriptions() {
  let count = 1 << 16
  let subject = PassthroughSubject<Int, Never>()
  var sinks: [AnyCancellable] = []
  sinks.reserveCapacity(count)
  sinks.append(subject.sink { _ in })
  let before = live_bytes()
  for _ in 1..<count { sinks.append(subject.sink { _ in }) }
  let each = (live_bytes() - before) / (count - 1)
  judge("sink on a subject", each, allowed: 200, of: "bytes")
  withExtendedLifetime(sinks) {}
}
