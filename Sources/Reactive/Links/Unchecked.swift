/// Passes a value that is not `Sendable` where the compiler requires one that is. Each use states why it is safe.
@usableFromInline struct Unchecked<Value>: @unchecked Sendable {
  @usableFromInline var value: Value

  @inlinable init(value: Value) { self.value = value }
}

extension Unchecked where Value == () -> Void {
  @inlinable init(_ value: @escaping () -> Void) { self.value = value }
}

/// A closure of this package where one of a user would have to be `Sendable`. What it uses, it uses as the operator does: one
/// call at a time.
@inlinable package func own<Argument, Result>(_ closure: @escaping (Argument) -> Result)
  -> @Sendable (Argument) -> Result
{
  nonisolated(unsafe) let closure = closure
  return { unsafe closure($0) }
}

/// The same, without an argument.
@inlinable package func own<Result>(_ closure: @escaping () -> Result) -> @Sendable () -> Result {
  nonisolated(unsafe) let closure = closure
  return { unsafe closure() }
}

/// The same, for two arguments.
@inlinable package func own<First, Second, Result>(
  _ closure: @escaping (First, Second) -> Result
) -> @Sendable (First, Second) -> Result {
  nonisolated(unsafe) let closure = closure
  return { unsafe closure($0, $1) }
}

extension Array {
  /// Empties the array and returns the former elements.
  @inlinable mutating func take() -> [Element] {
    defer { self = [] }
    return self
  }
}
