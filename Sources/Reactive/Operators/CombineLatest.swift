// Operators on two and more publishers. A third or fourth publisher is paired with the pair before it.

extension Publishers {
  /// Delivers the newest values of two publishers whenever one of them sends a new value.
  public struct CombineLatest<A: Publisher, B: Publisher>: Publisher where A.Failure == B.Failure {
    /// A value of each publisher.
    public typealias Output = (A.Output, B.Output)
    /// The failure type of both publishers.
    public typealias Failure = B.Failure
    /// The first publisher.
    public let a: A
    /// The second publisher.
    public let b: B

    /// `a.combineLatest(b)`
    @inlinable public init(_ a: A, _ b: B) { (self.a, self.b) = (a, b) }

    /// Attaches the subscriber to both publishers.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      var latestA: A.Output?
      var latestB: B.Output?
      var live = 2
      let link = PairLink<A.Output, B.Output, S>(subscriber, "CombineLatest") { event in
        switch event {
        case .first(let value): latestA = value
        case .second(let value): latestB = value
        case .firstFinished, .secondFinished, .failure:
          live -= 1
          return live == 0 ? .finish(last: nil) : .keep
        }
        guard let latestA, let latestB else { return .skip }
        return .emit((latestA, latestB))
      }
      link.begin(a, b)
    }
  }

  /// Delivers the first values of two publishers together, then their second values, and so on.
  public struct Zip<A: Publisher, B: Publisher>: Publisher where A.Failure == B.Failure {
    /// A value of each publisher.
    public typealias Output = (A.Output, B.Output)
    /// The failure type of both publishers.
    public typealias Failure = B.Failure
    /// The first publisher.
    public let a: A
    /// The second publisher.
    public let b: B

    /// `a.zip(b)`
    @inlinable public init(_ a: A, _ b: B) { (self.a, self.b) = (a, b) }

    /// Attaches the subscriber to both publishers.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      var valuesOfA = Fifo<A.Output>()
      var valuesOfB = Fifo<B.Output>()
      var isOverA = false
      var isOverB = false
      let link = PairLink<A.Output, B.Output, S>(subscriber, "Zip") { event in
        var pair: Output?
        switch event {
        case .first(let value):
          if let other = valuesOfB.popFirst() { pair = (value, other) } else { valuesOfA.append(value) }
        case .second(let value):
          if let other = valuesOfA.popFirst() { pair = (other, value) } else { valuesOfB.append(value) }
        case .firstFinished: isOverA = true
        case .secondFinished: isOverB = true
        case .failure: break
        }
        if isOverA && valuesOfA.isEmpty || isOverB && valuesOfB.isEmpty { return .finish(last: pair) }
        return pair.map { .emit($0) } ?? .keep
      }
      link.begin(a, b)
    }
  }

  /// Delivers values until another publisher delivers one.
  public struct PrefixUntilOutput<Upstream: Publisher, Other: Publisher>: Operator {
    /// The upstream publisher.
    public let upstream: Upstream
    /// The publisher whose first value finishes this one. Its completion has no effect.
    public let other: Other

    /// `upstream.prefix(untilOutputFrom: other)`
    @inlinable public init(upstream: Upstream, other: Other) { (self.upstream, self.other) = (upstream, other) }

    /// Attaches the subscriber to both publishers.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      let link = PairLink<Upstream.Output, Other.Output, S>(subscriber, "PrefixUntilOutput", secondIsTrigger: true) {
        event in
        switch event {
        case .first(let value): .emit(value)
        case .second, .firstFinished: .finish(last: nil)
        case .secondFinished, .failure: .keep
        }
      }
      link.begin(upstream, other) { _ in .secondFinished }
    }
  }

  /// Delivers values after another publisher has delivered one.
  public struct DropUntilOutput<Upstream: Publisher, Other: Publisher>: Operator
  where Upstream.Failure == Other.Failure {
    /// The failure type of both publishers.
    public typealias Failure = Other.Failure
    /// The upstream publisher.
    public let upstream: Upstream
    /// The publisher whose first value starts the delivery. If it completes before, this publisher completes, too.
    public let other: Other

    /// `upstream.drop(untilOutputFrom: other)`
    @inlinable public init(upstream: Upstream, other: Other) { (self.upstream, self.other) = (upstream, other) }

    /// Attaches the subscriber to both publishers.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      var isOpen = false
      let link = PairLink<Upstream.Output, Other.Output, S>(subscriber, "DropUntilOutput", secondIsTrigger: true) {
        event in
        switch event {
        case .first(let value): return isOpen ? .emit(value) : .skip
        case .second:
          isOpen = true
          return .keep
        case .firstFinished: return .finish(last: nil)
        case .secondFinished, .failure: return isOpen ? .keep : .finish(last: nil)
        }
      }
      link.begin(upstream, other)
    }
  }

  /// Delivers the newest values of three publishers whenever one of them sends a new value.
  public struct CombineLatest3<A: Publisher, B: Publisher, C: Publisher>: CompositePublisher
  where A.Failure == B.Failure, B.Failure == C.Failure {
    /// A publisher whose values are paired.
    public let (a, b, c): (A, B, C)

    /// `a.combineLatest(b, c)`
    @inlinable public init(_ a: A, _ b: B, _ c: C) { (self.a, self.b, self.c) = (a, b, c) }

    /// Pairs each publisher with the pair before it.
    @inlinable public var body: some Publisher<(A.Output, B.Output, C.Output), A.Failure> {
      Map(upstream: CombineLatest(CombineLatest(a, b), c)) { ($0.0.0, $0.0.1, $0.1) }
    }
  }

  /// Delivers the newest values of four publishers whenever one of them sends a new value.
  public struct CombineLatest4<A: Publisher, B: Publisher, C: Publisher, D: Publisher>: CompositePublisher
  where A.Failure == B.Failure, B.Failure == C.Failure, C.Failure == D.Failure {
    /// A publisher whose values are paired.
    public let (a, b, c, d): (A, B, C, D)

    /// `a.combineLatest(b, c, d)`
    @inlinable public init(_ a: A, _ b: B, _ c: C, _ d: D) { (self.a, self.b, self.c, self.d) = (a, b, c, d) }

    /// Pairs each publisher with the pair before it.
    @inlinable public var body: some Publisher<(A.Output, B.Output, C.Output, D.Output), A.Failure> {
      Map(upstream: CombineLatest(CombineLatest(CombineLatest(a, b), c), d)) { ($0.0.0.0, $0.0.0.1, $0.0.1, $0.1) }
    }
  }

  /// Delivers the first values of three publishers together, then their second values, and so on.
  public struct Zip3<A: Publisher, B: Publisher, C: Publisher>: CompositePublisher
  where A.Failure == B.Failure, B.Failure == C.Failure {
    /// A publisher whose values are paired.
    public let (a, b, c): (A, B, C)

    /// `a.zip(b, c)`
    @inlinable public init(_ a: A, _ b: B, _ c: C) { (self.a, self.b, self.c) = (a, b, c) }

    /// Pairs each publisher with the pair before it.
    @inlinable public var body: some Publisher<(A.Output, B.Output, C.Output), A.Failure> {
      Map(upstream: Zip(Zip(a, b), c)) { ($0.0.0, $0.0.1, $0.1) }
    }
  }

  /// Delivers the first values of four publishers together, then their second values, and so on.
  public struct Zip4<A: Publisher, B: Publisher, C: Publisher, D: Publisher>: CompositePublisher
  where A.Failure == B.Failure, B.Failure == C.Failure, C.Failure == D.Failure {
    /// A publisher whose values are paired.
    public let (a, b, c, d): (A, B, C, D)

    /// `a.zip(b, c, d)`
    @inlinable public init(_ a: A, _ b: B, _ c: C, _ d: D) { (self.a, self.b, self.c, self.d) = (a, b, c, d) }

    /// Pairs each publisher with the pair before it.
    @inlinable public var body: some Publisher<(A.Output, B.Output, C.Output, D.Output), A.Failure> {
      Map(upstream: Zip(Zip(Zip(a, b), c), d)) { ($0.0.0.0, $0.0.0.1, $0.0.1, $0.1) }
    }
  }
}

extension Publishers.CombineLatest: Equatable where A: Equatable, B: Equatable {}
extension Publishers.Zip: Equatable where A: Equatable, B: Equatable {}
extension Publishers.CombineLatest3: Equatable where A: Equatable, B: Equatable, C: Equatable {}
extension Publishers.CombineLatest4: Equatable where A: Equatable, B: Equatable, C: Equatable, D: Equatable {}
extension Publishers.Zip3: Equatable where A: Equatable, B: Equatable, C: Equatable {}
extension Publishers.Zip4: Equatable where A: Equatable, B: Equatable, C: Equatable, D: Equatable {}
extension Publishers.PrefixUntilOutput: Equatable where Upstream: Equatable, Other: Equatable {}
extension Publishers.DropUntilOutput: Equatable where Upstream: Equatable, Other: Equatable {}

extension Publisher {
  /// Delivers the newest values of both publishers whenever one sends a new value and both have sent one. Demand:
  /// passed to each publisher; a value that arrives without demand only replaces the newest one.
  @inlinable public func combineLatest<P: Publisher>(_ other: P) -> Publishers.CombineLatest<Self, P>
  where P.Failure == Failure {
    Publishers.CombineLatest(self, other)
  }

  /// Delivers the closure's result for the values of both publishers; see `combineLatest`. Demand: passed to each.
  @preconcurrency @inlinable public func combineLatest<P: Publisher, T>(
    _ other: P, _ transform: @escaping @Sendable (Output, P.Output) -> T
  ) -> Publishers.Map<Publishers.CombineLatest<Self, P>, T> where P.Failure == Failure {
    combineLatest(other).map { transform($0.0, $0.1) }
  }

  /// Delivers the newest values of three publishers whenever one sends a new value. Demand: passed to each.
  @inlinable public func combineLatest<P: Publisher, Q: Publisher>(_ publisher1: P, _ publisher2: Q)
    -> Publishers.CombineLatest3<Self, P, Q> where P.Failure == Failure, Q.Failure == Failure
  {
    .init(self, publisher1, publisher2)
  }

  /// Delivers the closure's result for the values of three publishers; see `combineLatest`. Demand: passed to each.
  @preconcurrency @inlinable public func combineLatest<P: Publisher, Q: Publisher, T>(
    _ publisher1: P, _ publisher2: Q, _ transform: @escaping @Sendable (Output, P.Output, Q.Output) -> T
  ) -> Publishers.Map<Publishers.CombineLatest3<Self, P, Q>, T> where P.Failure == Failure, Q.Failure == Failure {
    combineLatest(publisher1, publisher2).map { transform($0.0, $0.1, $0.2) }
  }

  /// Delivers the newest values of four publishers whenever one sends a new value. Demand: passed to each.
  @inlinable public func combineLatest<P: Publisher, Q: Publisher, R: Publisher>(
    _ publisher1: P, _ publisher2: Q, _ publisher3: R
  )
    -> Publishers.CombineLatest4<Self, P, Q, R> where P.Failure == Failure, Q.Failure == Failure, R.Failure == Failure
  {
    .init(self, publisher1, publisher2, publisher3)
  }

  /// Delivers the closure's result for the values of four publishers; see `combineLatest`. Demand: passed to each.
  @preconcurrency @inlinable public func combineLatest<P: Publisher, Q: Publisher, R: Publisher, T>(
    _ publisher1: P, _ publisher2: Q, _ publisher3: R,
    _ transform: @escaping @Sendable (Output, P.Output, Q.Output, R.Output) -> T
  ) -> Publishers.Map<Publishers.CombineLatest4<Self, P, Q, R>, T>
  where P.Failure == Failure, Q.Failure == Failure, R.Failure == Failure {
    combineLatest(publisher1, publisher2, publisher3).map { transform($0.0, $0.1, $0.2, $0.3) }
  }

  /// Delivers the first values of both publishers together, then their second values, and so on. Demand: passed to each
  /// publisher, whose values wait here for the other's. Completes when one has completed and none of its values waits.
  @inlinable public func zip<P: Publisher>(_ other: P) -> Publishers.Zip<Self, P> where P.Failure == Failure {
    Publishers.Zip(self, other)
  }

  /// Delivers the closure's result for the values of both publishers; see `zip`. Demand: passed to each.
  @preconcurrency @inlinable public func zip<P: Publisher, T>(
    _ other: P, _ transform: @escaping @Sendable (Output, P.Output) -> T
  ) -> Publishers.Map<Publishers.Zip<Self, P>, T> where P.Failure == Failure {
    zip(other).map { transform($0.0, $0.1) }
  }

  /// Delivers the first values of three publishers together, and so on. Demand: passed to each.
  @inlinable public func zip<P: Publisher, Q: Publisher>(_ publisher1: P, _ publisher2: Q)
    -> Publishers.Zip3<Self, P, Q>
  where P.Failure == Failure, Q.Failure == Failure {
    .init(self, publisher1, publisher2)
  }

  /// Delivers the closure's result for the values of three publishers; see `zip`. Demand: passed to each.
  @preconcurrency @inlinable public func zip<P: Publisher, Q: Publisher, T>(
    _ publisher1: P, _ publisher2: Q, _ transform: @escaping @Sendable (Output, P.Output, Q.Output) -> T
  ) -> Publishers.Map<Publishers.Zip3<Self, P, Q>, T> where P.Failure == Failure, Q.Failure == Failure {
    zip(publisher1, publisher2).map { transform($0.0, $0.1, $0.2) }
  }

  /// Delivers the first values of four publishers together, and so on. Demand: passed to each.
  @inlinable public func zip<P: Publisher, Q: Publisher, R: Publisher>(
    _ publisher1: P, _ publisher2: Q, _ publisher3: R
  )
    -> Publishers.Zip4<Self, P, Q, R> where P.Failure == Failure, Q.Failure == Failure, R.Failure == Failure
  {
    .init(self, publisher1, publisher2, publisher3)
  }

  /// Delivers the closure's result for the values of four publishers; see `zip`. Demand: passed to each.
  @preconcurrency @inlinable public func zip<P: Publisher, Q: Publisher, R: Publisher, T>(
    _ publisher1: P, _ publisher2: Q, _ publisher3: R,
    _ transform: @escaping @Sendable (Output, P.Output, Q.Output, R.Output) -> T
  ) -> Publishers.Map<Publishers.Zip4<Self, P, Q, R>, T>
  where P.Failure == Failure, Q.Failure == Failure, R.Failure == Failure {
    zip(publisher1, publisher2, publisher3).map { transform($0.0, $0.1, $0.2, $0.3) }
  }

  /// Delivers values until `publisher` delivers one, then finishes. Requests one value from `publisher`, whose
  /// completion has no effect.
  @inlinable public func prefix<P: Publisher>(untilOutputFrom publisher: P) -> Publishers.PrefixUntilOutput<Self, P> {
    Publishers.PrefixUntilOutput(upstream: self, other: publisher)
  }

  /// Omits values until `publisher` delivers one; an omitted value uses no demand. Requests one value from `publisher`;
  /// if it completes before, so does this publisher.
  @inlinable public func drop<P: Publisher>(untilOutputFrom publisher: P) -> Publishers.DropUntilOutput<Self, P>
  where P.Failure == Failure {
    Publishers.DropUntilOutput(upstream: self, other: publisher)
  }
}
