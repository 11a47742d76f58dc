import Reactive
import Testing

// Each operator is a distinct type: of two that were one type, the second function would not compile.
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

// The same member for each operator: of two that were one type, the second extension would not compile.
extension Publishers.Map { fileprivate var name: String { "Map" } }
extension Publishers.TryMap { fileprivate var name: String { "TryMap" } }
extension Publishers.MapKeyPath { fileprivate var name: String { "MapKeyPath" } }
extension Publishers.MapKeyPath2 { fileprivate var name: String { "MapKeyPath2" } }
extension Publishers.Scan { fileprivate var name: String { "Scan" } }
extension Publishers.Filter { fileprivate var name: String { "Filter" } }
extension Publishers.TryFilter { fileprivate var name: String { "TryFilter" } }
extension Publishers.Count { fileprivate var name: String { "Count" } }
extension Publishers.Last { fileprivate var name: String { "Last" } }
extension Publishers.Debounce { fileprivate var name: String { "Debounce" } }
extension Publishers.Delay { fileprivate var name: String { "Delay" } }
extension Publishers.Print { fileprivate var name: String { "Print" } }
extension Publishers.Breakpoint { fileprivate var name: String { "Breakpoint" } }
extension Publishers.Catch { fileprivate var name: String { "Catch" } }
extension Publishers.TryCatch { fileprivate var name: String { "TryCatch" } }
extension Publishers.ReplaceError { fileprivate var name: String { "ReplaceError" } }
extension Publishers.Merge { fileprivate var name: String { "Merge" } }
extension Publishers.Merge3 { fileprivate var name: String { "Merge3" } }
extension Publishers.Zip3 { fileprivate var name: String { "Zip3" } }
extension Publishers.CombineLatest3 { fileprivate var name: String { "CombineLatest3" } }
extension Publishers.MakeConnectable { fileprivate var name: String { "MakeConnectable" } }
extension Publishers.Share { fileprivate var name: String { "Share" } }

@Suite struct OperatorTypesTests {
  @Test func eachOperatorIsExtendedOnItsOwn() {
    let source = PassthroughSubject<Int, Never>()
    let now = ImmediateScheduler.shared
    #expect(source.map { $0 }.name == "Map" && source.tryMap { $0 }.name == "TryMap")
    #expect(source.map(\.self).name == "MapKeyPath" && source.map(\.self, \.self).name == "MapKeyPath2")
    #expect(source.scan(0, +).name == "Scan" && source.map { $0 }.scan(0, +).name == "Scan")
    #expect(source.filter { $0 > 0 }.name == "Filter" && source.tryFilter { $0 > 0 }.name == "TryFilter")
    #expect(source.count().name == "Count" && source.last().name == "Last")
    #expect(source.debounce(for: 1, scheduler: now).name == "Debounce")
    #expect(source.delay(for: 1, scheduler: now).name == "Delay")
    #expect(source.print().name == "Print" && source.breakpoint().name == "Breakpoint")
    let failing = Fail<Int, TestError>(error: TestError())
    #expect(failing.catch { _ in source }.name == "Catch" && failing.tryCatch { _ in source }.name == "TryCatch")
    #expect(source.replaceError(with: 1).name == "ReplaceError")
    #expect(source.merge(with: Just(1)).name == "Merge" && source.merge(with: source, source).name == "Merge3")
    #expect(source.zip(source, source).name == "Zip3")
    #expect(source.combineLatest(source, source).name == "CombineLatest3")
    #expect(source.makeConnectable().name == "MakeConnectable" && source.share().name == "Share")
  }

  @Test func operatorsHaveCombinesProperties() {
    let (one, two) = (Just(1), Just(2))
    #expect(Publishers.Map(upstream: one) { $0 }.upstream == one && Publishers.Share(upstream: one).upstream == one)
    #expect(Publishers.Drop(upstream: one, count: 3).count == 3)
    #expect(Publishers.Output(upstream: one, range: 1..<3).range == 1..<3)
    #expect(Publishers.CollectByCount(upstream: one, count: 3).count == 3)
    #expect(Publishers.Contains(upstream: one, output: 3).output == 3)
    #expect(Publishers.ReplaceError(upstream: one, output: 3).output == 3)
    #expect(Publishers.Print(upstream: one, prefix: "p").prefix == "p")
    let merged = Publishers.Merge8(one, two, one, one, one, one, one, two)
    #expect(merged.a == one && merged.b == two && merged.h == two)
    #expect(Publishers.Zip3(one, one, two).c == two && Publishers.CombineLatest4(one, one, one, two).d == two)
  }

  @Test func closuresAndSchedulersArePropertiesAsInCombine() throws {
    let (one, time) = (PassthroughSubject<Int, TestError>(), VirtualTimeScheduler())
    #expect(one.map { $0 + 1 }.transform(1) == 2 && one.compactMap { Int?($0) }.transform(1) == 1)
    #expect(try one.tryMap { $0 + 1 }.transform(1) == 2 && one.tryCompactMap { Int?($0) }.transform(1) == 1)
    #expect(one.map(\.description, \.magnitude).keyPath1 == \Int.magnitude)
    #expect(one.map(\.description, \.magnitude, \.self).keyPath2 == \Int.self)
    #expect(one.filter { $0 > 1 }.isIncluded(2))
    #expect(try one.tryFilter { $0 > 1 }.isIncluded(2))
    let scan = one.scan(3) { $0 + $1 }
    #expect(scan.initialResult == 3 && scan.nextPartialResult(1, 2) == 3)
    let reduce = one.reduce(3) { $0 + $1 }
    #expect(reduce.initial == 3 && reduce.nextPartialResult(1, 2) == 3)
    #expect(one.removeDuplicates().predicate(1, 1) && one.drop { $0 > 1 }.predicate(2))
    #expect(one.prefix { $0 > 1 }.predicate(2) && one.first { $0 > 1 }.predicate(2) && one.last { $0 > 1 }.predicate(2))
    #expect(one.contains { $0 > 1 }.predicate(2) && one.allSatisfy { $0 > 1 }.predicate(2))
    #expect(one.max().areInIncreasingOrder(1, 2) && one.min().areInIncreasingOrder(2, 1))
    #expect(one.mapError { _ in SingleError.noElements }.transform(TestError()) == .noElements)
    #expect(one.assertNoFailure("here").prefix == "here")
    let breakpoint = one.breakpoint { _ in true }
    #expect(breakpoint.receiveSubscription?(Subscriptions.empty) == true && breakpoint.receiveOutput == nil)
    #expect(one.print().stream == nil)
    #expect(one.receive(on: time).scheduler === time && one.delay(for: 2, scheduler: time).interval == 2)
    #expect(one.debounce(for: 2, scheduler: time).dueTime == 2)
    #expect(one.throttle(for: 2, scheduler: time, latest: true).latest)
    let timeout = one.timeout(2, scheduler: time) { TestError() }
    #expect(timeout.interval == 2 && timeout.customError?() == TestError())
    let buffer = one.buffer(size: 3, prefetch: .keepFull, whenFull: .dropNewest)
    #expect(buffer.size == 3 && buffer.prefetch == .keepFull)
    guard case .byTime(let scheduler, 2) = one.collect(.byTime(time, 2)).strategy else { throw TestError() }
    #expect(scheduler === time)
  }

  /// The types are the test: a chain of two operators would not be of these types.
  @Test func closuresInARowMakeOneOperatorAsInCombine() {
    typealias Source = PassthroughSubject<Int, Never>
    let source = Source()
    let maps: Publishers.Map<Source, String> = source.map { $0 + 1 }.map { "\($0)" }
    let tries: [Publishers.TryMap<Source, Int>] = [
      source.map { $0 + 1 }.tryMap { $0 * 2 }, source.tryMap { $0 + 1 }.map { $0 * 2 },
      source.tryMap { $0 + 1 }.tryMap { $0 * 2 },
    ]
    let compact: [Publishers.CompactMap<Source, Int>] = [
      source.compactMap { $0 > 1 ? $0 : nil }.compactMap { $0 < 3 ? $0 : nil },
      source.compactMap { $0 > 1 && $0 < 3 ? $0 : nil }.map { $0 },
    ]
    let tried: Publishers.TryCompactMap<Source, Int> = source.tryCompactMap { $0 > 1 ? $0 : nil }
      .compactMap { $0 < 3 ? $0 : nil }
    let filters: Publishers.Filter<Source> = source.filter { $0 > 1 }.filter { $0 < 3 }
    let tryFilters: [Publishers.TryFilter<Source>] = [
      source.filter { $0 > 1 }.tryFilter { $0 < 3 }, source.tryFilter { $0 > 1 }.filter { $0 < 3 },
      source.tryFilter { $0 > 1 }.tryFilter { $0 < 3 },
    ]
    nonisolated(unsafe) var seen: [String] = []
    func note<P: Publisher>(_ publisher: P) -> AnyCancellable {
      publisher.sink(receiveCompletion: { _ in }, receiveValue: { seen.append("\($0)") })
    }
    let sinks =
      [note(maps), note(tried), note(filters)] + tries.map(note) + compact.map(note) + tryFilters.map(note)
    for value in 1...3 { source.send(value) }
    let counts = Dictionary(grouping: seen, by: \.self).mapValues(\.count)
    #expect(counts == ["2": 8, "3": 1, "4": 4, "6": 3, "8": 3])
    withExtendedLifetime(sinks) {}
  }

  @Test func operatorsAreDistinctTypes() {
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
    #expect(Publishers.Merge3(one, one, two) != Publishers.Merge3(one, two, two))
    #expect(Publishers.Zip4(one, one, one, two) == Publishers.Zip4(one, one, one, two))
    #expect(Publishers.CombineLatest3(one, one, two) != Publishers.CombineLatest3(one, one, one))
    #expect(Publishers.Collect(upstream: one) != Publishers.Collect(upstream: two))
    #expect(Publishers.Count(upstream: one) == Publishers.Count(upstream: one))
    #expect(Publishers.First(upstream: one) != Publishers.First(upstream: two))
    #expect(Publishers.Last(upstream: one) == Publishers.Last(upstream: one))
    #expect(Publishers.IgnoreOutput(upstream: one) == Publishers.IgnoreOutput(upstream: one))
    #expect(Publishers.Contains(upstream: one, output: 1) != Publishers.Contains(upstream: one, output: 2))
    #expect(Publishers.Drop(upstream: one, count: 1) != Publishers.Drop(upstream: one, count: 2))
    #expect(Publishers.Output(upstream: one, range: 0..<2) == Publishers.Output(upstream: one, range: 0..<2))
    #expect(Publishers.CollectByCount(upstream: one, count: 1) != Publishers.CollectByCount(upstream: one, count: 2))
    #expect(Publishers.ReplaceError(upstream: one, output: 1) != Publishers.ReplaceError(upstream: one, output: 2))
    typealias Failing = Publishers.SetFailureType<Just<Int>, TestError>
    #expect(Failing(upstream: one) != Failing(upstream: two))
    let shared = Publishers.Share(upstream: one)
    #expect(shared == shared && shared != Publishers.Share(upstream: one))
  }
}
