/** A queue of items, whose first ones can be taken without moving the others. */
export class Queue {
  #items = new Array(16);
  #first = 0;
  length = 0;

  push(item) {
    if (this.length === this.#items.length) this.#grow();
    this.#items[this.#first + this.length++ & this.#items.length - 1] = item;
  }

  /** The item at an index, which must exist. */
  at(index) {
    return this.#items[this.#first + index & this.#items.length - 1];
  }

  /** Takes the first item, which must exist. */
  shift() {
    const item = this.#items[this.#first];
    this.#items[this.#first] = undefined;
    this.#first = this.#first + 1 & this.#items.length - 1;
    this.length--;
    return item;
  }

  clear() {
    this.#items = new Array(16);
    this.#first = this.length = 0;
  }

  /** The capacity stays a power of two. */
  #grow() {
    const items = new Array(this.#items.length * 2);
    for (let index = 0; index < this.length; index++) items[index] = this.at(index);
    this.#items = items;
    this.#first = 0;
  }
}
