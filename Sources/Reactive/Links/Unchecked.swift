/// Passes a value that is not `Sendable` where the compiler requires one that is. Each use states why it is safe.
@usableFromInline struct Unchecked<Value>: @unchecked Sendable {
  @usableFromInline var value: Value

  @inlinable init(value: Value) { self.value = value }
}

extension Unchecked where Value == () -> Void {
  @inlinable init(_ value: @escaping () -> Void) { self.value = value }
}

extension Array {
  /// Empties the array and returns the former elements.
  @inlinable mutating func take() -> [Element] {
    defer { self = [] }
    return self
  }
}
