import Reactive
import Testing

// Each operator has a type of its own: of two that were one type, the second function would not compile.
private func which<U, O>(_: Publishers.Map<U, O>) -> String { "Map" }
private func which<U, O>(_: Publishers.TryMap<U, O>) -> String { "TryMap" }
private func which<U, O>(_: Publishers.Scan<U, O>) -> String { "Scan" }
private func which<U, O>(_: Publishers.CompactMap<U, O>) -> String { "CompactMap" }
private func which<U>(_: Publishers.Filter<U>) -> String { "Filter" }
private func which<U>(_: Publishers.RemoveDuplicates<U>) -> String { "RemoveDuplicates" }
private func which<U>(_: Publishers.Drop<U>) -> String { "Drop" }
private func which<U>(_: Publishers.DropWhile<U>) -> String { "DropWhile" }
private func which<U>(_: Publishers.Output<U>) -> String { "Output" }
private func which<U>(_: Publishers.PrefixWhile<U>) -> String { "PrefixWhile" }
private func which<U, E>(_: Publishers.MapError<U, E>) -> String { "MapError" }
private func which<U: Publisher, E>(_: Publishers.SetFailureType<U, E>) -> String where U.Failure == Never {
  "SetFailureType"
}
private func which<U>(_: Publishers.AssertNoFailure<U>) -> String { "AssertNoFailure" }
private func which<U>(_: Publishers.CollectByCount<U>) -> String { "CollectByCount" }
private func which<U>(_: Publishers.First<U>) -> String { "First" }
private func which<U>(_: Publishers.FirstWhere<U>) -> String { "FirstWhere" }
private func which<U>(_: Publishers.Last<U>) -> String { "Last" }
private func which<U>(_: Publishers.LastWhere<U>) -> String { "LastWhere" }
private func which<U, O>(_: Publishers.Reduce<U, O>) -> String { "Reduce" }
private func which<U>(_: Publishers.Collect<U>) -> String { "Collect" }
private func which<U>(_: Publishers.Count<U>) -> String { "Count" }
private func which<U>(_: Publishers.Comparison<U>) -> String { "Comparison" }
private func which<U>(_: Publishers.IgnoreOutput<U>) -> String { "IgnoreOutput" }
private func which<U: Publisher>(_: Publishers.Contains<U>) -> String where U.Output: Equatable { "Contains" }
private func which<U>(_: Publishers.ContainsWhere<U>) -> String { "ContainsWhere" }
private func which<U>(_: Publishers.AllSatisfy<U>) -> String { "AllSatisfy" }
private func which<U>(_: Publishers.Buffer<U>) -> String { "Buffer" }
private func which<U, S>(_: Publishers.CollectByTime<U, S>) -> String { "CollectByTime" }
private func which<U, S>(_: Publishers.Debounce<U, S>) -> String { "Debounce" }
private func which<U, S>(_: Publishers.Throttle<U, S>) -> String { "Throttle" }
private func which<U, S>(_: Publishers.Delay<U, S>) -> String { "Delay" }
private func which<U, S>(_: Publishers.ReceiveOn<U, S>) -> String { "ReceiveOn" }
private func which<U, S>(_: Publishers.Timeout<U, S>) -> String { "Timeout" }
private func which<U>(_: Publishers.HandleEvents<U>) -> String { "HandleEvents" }
private func which<U>(_: Publishers.Print<U>) -> String { "Print" }
private func which<U>(_: Publishers.Breakpoint<U>) -> String { "Breakpoint" }

// The same member for several operators: each extension says which kind it is for.
extension Publishers.Map where Kind == OperatorKind.Map { fileprivate func kind() -> String { "map" } }
extension Publishers.Scan where Kind == OperatorKind.Scan { fileprivate func kind() -> String { "scan" } }
extension Publishers.Count where Kind == OperatorKind.Count { fileprivate func kind() -> String { "count" } }
extension Publishers.Last where Kind == OperatorKind.Last { fileprivate func kind() -> String { "last" } }
extension Publishers.Debounce where Kind == OperatorKind.Debounce { fileprivate func kind() -> String { "debounce" } }
extension Publishers.Delay where Kind == OperatorKind.Delay { fileprivate func kind() -> String { "delay" } }

@Suite struct OperatorTypesTests {
  @Test func operatorsOfOneStructureAreExtendedOneByOne() {
    let source = PassthroughSubject<Int, Never>()
    let now = ImmediateScheduler.shared
    #expect(source.map { $0 }.kind() == "map" && source.tryMap { $0 }.kind() == "map")
    #expect(source.scan(0, +).kind() == "scan" && source.count().kind() == "count" && source.last().kind() == "last")
    #expect(source.debounce(for: 1, scheduler: now).kind() == "debounce")
    #expect(source.delay(for: 1, scheduler: now).kind() == "delay")
  }

  @Test func operatorsAreToldApartByType() {
    let source = PassthroughSubject<Int, Never>()
    let now = ImmediateScheduler.shared
    #expect(which(source.map { $0 }) == "Map" && which(source.scan(0, +)) == "Scan")
    #expect(which(source.filter { $0 > 0 }) == "Filter" && which(source.removeDuplicates()) == "RemoveDuplicates")
    #expect(which(source.dropFirst()) == "Drop" && which(source.drop { $0 > 0 }) == "DropWhile")
    #expect(which(source.first()) == "First" && which(source.first { $0 > 0 }) == "FirstWhere")
    #expect(which(source.last()) == "Last" && which(source.max()) == "Comparison")
    #expect(which(source.reduce(0, +)) == "Reduce" && which(source.collect()) == "Collect")
    #expect(which(source.contains(1)) == "Contains" && which(source.contains { $0 > 1 }) == "ContainsWhere")
    let failing = Fail<Int, TestError>(error: TestError())
    #expect(which(failing.mapError { $0 }) == "MapError")
    #expect(which(source.setFailureType(to: TestError.self)) == "SetFailureType")
    #expect(which(source.receive(on: now)) == "ReceiveOn" && which(source.delay(for: 1, scheduler: now)) == "Delay")
    #expect(which(source.handleEvents()) == "HandleEvents" && which(source.print()) == "Print")
  }

  @Test func publishersOfEqualPartsAreEqual() {
    let (one, two) = (Just(1), Just(2))
    #expect(
      Publishers.Zip(one, two) == Publishers.Zip(one, two) && Publishers.Zip(one, one) != Publishers.Zip(one, two))
    #expect(Publishers.CombineLatest(one, two) == Publishers.CombineLatest(one, two))
    #expect(Publishers.Concatenate(prefix: one, suffix: two) == Publishers.Concatenate(prefix: one, suffix: two))
    #expect(Publishers.Retry(upstream: one, retries: 1) != Publishers.Retry(upstream: one, retries: 2))
    #expect(Publishers.ReplaceEmpty(upstream: one, output: 1) == Publishers.ReplaceEmpty(upstream: one, output: 1))
    #expect(Publishers.MergeMany(one, two) == Publishers.MergeMany([one, two]))
    #expect(
      Publishers.PrefixUntilOutput(upstream: one, other: two) == Publishers.PrefixUntilOutput(upstream: one, other: two)
    )
    #expect(
      Publishers.DropUntilOutput(upstream: one, other: two) == Publishers.DropUntilOutput(upstream: one, other: two))
  }
}
